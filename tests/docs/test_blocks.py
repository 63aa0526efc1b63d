"""Every code block of what is written for people: run somewhere, or at least a command that there is.

A page may show what takes hours. Of such a block each line is held to the commands, options, stages, targets
and rows that there are. What is cheap and changes nothing is run.
"""

import re
import shlex
import shutil
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dprepro.stages.app import app
from tests.docs.blocks import CONSOLE, ROOT, blocks, declared, problem

# blocks that are no commands, and the test that runs them
RUN_BY = {
    ("CONTRIBUTING.md", "python", 2): "tests/test_contributing.py",
    ("CONTRIBUTING.md", "yaml", 1): "tests/test_contributing.py",
    ("docs/audit-your-model.md", "python", 4): "tests/library/test_replay.py",
    ("docs/audit-your-training.md", "python", 2): "tests/library/test_audit_training.py",
    ("docs/design.md", "text", 1): "tests/test_design.py",
    ("docs/laboratory.md", "yaml", 2): "tests/test_wheel.py",
    ("docs/library.md", "python", 10): "tests/library/test_library.py",
    ("docs/own-model.md", "python", 1): "tests/test_contributing.py",
    ("docs/own-model.md", "yaml", 1): "tests/test_contributing.py",
    ("docs/private-model.md", "python", 2): "tests/docs/test_own_data.py",
    ("docs/tables.md", "python", 1): "tests/docs/test_own_data.py",
    ("docs/tables.md", "yaml", 1): "tests/docs/test_own_data.py",
    ("docs/public-network.md", "python", 1): "tests/data/test_trunk.py",
    ("docs/public-network.md", "yaml", 1): "tests/data/test_trunk.py",
    ("docs/own-data.md", "python", 1): "tests/docs/test_own_data.py",
    ("docs/own-data.md", "yaml", 2): "tests/docs/test_own_data.py",
    ("docs/shuffling.md", "python", 1): "tests/library/test_samplers.py",
}
# commands that answer in seconds and need nothing but what is committed
ANSWERS = re.compile(r"dprepro (epsilon|compare) ")
TYPED = [block for block in blocks() if block.language in CONSOLE]
EVERY = sorted({(block.page, line) for block in TYPED for line in block.commands})
CHEAP = [line for _, line in EVERY if ANSWERS.match(line)]


@pytest.fixture(scope="module")
def names() -> set[str]:
    return declared()


def test_every_other_block_is_run_by_a_test() -> None:
    counts = Counter((block.page, block.language) for block in blocks() if block.language not in CONSOLE)
    assert {(page, language, count) for (page, language), count in counts.items()} == set(RUN_BY)
    for (page, _, _), test in RUN_BY.items():
        assert page.rpartition("/")[2] in (ROOT / test).read_text(), f"{test} reads no {page}"


@pytest.mark.parametrize(("page", "line"), EVERY)
def test_every_line_is_a_command_that_there_is(names: set[str], page: str, line: str) -> None:
    assert problem(line, names) is None, page


@pytest.mark.parametrize(
    "line",
    [
        *("dprepro trian my-row", "dprepro train no-such-row", "dprepro epsilon --sigmas 1"),
        *("dprepro epsilon --sigma much --batch 1 --examples 2", "dprepro new data", "make coffee"),
        *(
            "dvc repro train@none",
            "dvc repro --glob train@none-*",
            "dvc repro bake",
            "pip install -e '.[gold]'",
            "curl example.org",
        ),
        *("export bread", "python -m no_such_module"),
    ],
)
def test_what_there_is_not_is_noticed(names: set[str], line: str) -> None:
    assert problem(line, names) is not None


@pytest.mark.parametrize("line", sorted(set(CHEAP)))
def test_what_answers_at_once_is_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(ROOT if line.startswith("dprepro compare") else tmp_path)
    done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.output.strip()
