"""The wheel, in environments that have what `pip install` with each extra would bring, and no more.

The packages of those environments are links to the ones that are installed here: to install torch anew for
each takes minutes.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from packaging.requirements import Requirement
from ruamel.yaml import YAML

from dprepro.pipeline.files import digest_files
from dprepro.stages.init import without_audits
from tests import commands
from tests.docs.blocks import CONSOLE, WRITTEN, blocks, edit, lay
from tests.laboratory import take_renyi_dp

ROOT = Path(__file__).parents[1]
PACKAGES = ("dprepro",)
# but Jinja, which torch needs too
OF_A_LABORATORY = {"dvc", "matplotlib", "mlflow", "pandas", "PIL", "pooch", "requests"}
OF_OTHER_EXTRAS = {"torchtext"}
# modules of one's own, which nothing of dprepro may take for its own
OWN_MODULES = dict.fromkeys(("pipeline/__init__.py", "stages.py"), "raise ImportError('not of dprepro')\n")
PARAMS = """\
source: {kind: synthetic}
raw: {ag-news: {train: 200, test: 20}}
data:
  ag-news:
    {raw: ag-news, train: 150, validation: 20, public: {raw: ag-news, count: 10},
     text: {tokens: 8, vocabulary: 50}}
rows: {}
accounts:
  counted:
    paper: mine
    table: t1
    label: DP-SGD
    settings: {examples: 1000, batch: 100, epochs: 1, delta: 1.0e-5, noise_multiplier: 1.1}
    levels: [{noise_multiplier: 1.1}]
"""


class Installed:
    """An environment with the wheel and what some extras bring."""

    def __init__(self, folder: Path, wheel: Path, extras: Iterable[str]) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.python = folder / "bin/python"
        pip: list[Any] = [sys.executable, "-m", "pip", "--python", self.python]
        subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
        self.site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
        (package,) = distributions(name="dprepro", path=[str(self.site)])
        for needed in {each.name: each for each in _closure(package, extras)}.values():
            for top in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
                if not top.endswith(".pth") and not (self.site / top).exists():
                    (self.site / top).symlink_to(str(needed.locate_file(top)))
        who = {f"GIT_{role}_{what}": "test" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        path = f"{folder / 'bin'}:{os.defpath}"
        self.environment = {**who, "PATH": path, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
        self.forking: subprocess.Popen[str] | None = None

    def type(self, line: str, folder: Path, fails: bool = False) -> str:
        """What a line says that is typed in a folder, by a process of this environment."""
        done = subprocess.run(
            line, shell=True, cwd=folder, env=self.environment, capture_output=True, text=True
        )
        return self._said(line, done.returncode, done.stdout + done.stderr, fails)

    def type_fast(self, line: str, folder: Path, fails: bool = False) -> str:
        """The same, by forks of one process, which has imported the packages of this environment."""
        if self.forking is None:
            script = [str(self.python), "-P", str(commands.__file__)]
            self.forking = subprocess.Popen(
                script, env=self.environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        asked, answers = self.forking.stdin, self.forking.stdout
        print(json.dumps([line, str(folder)]), file=asked, flush=True)
        status, *said = json.loads(answers.readline())
        return self._said(line, status, "".join(said), fails)

    @staticmethod
    def _said(line: str, status: int, said: str, fails: bool) -> str:
        assert (status != 0) == fails, f"{line}\n{said}"
        return said

    def digest(self) -> str:
        """Of the files that the wheel brought."""
        files = (path for package in PACKAGES for path in (self.site / package).rglob("*"))
        return digest_files(self.site, [path for path in files if path.is_file() and path.suffix != ".pyc"])


def _closure(needing: Distribution, extras: Iterable[str]) -> Iterator[Distribution]:
    """What a distribution needs with some of its extras, and what that needs."""
    todo, seen = [(needing, tuple(extras))], set()
    while todo:
        needing, extras = todo.pop()
        for text in needing.requires or ():
            needed = Requirement(text)
            wanted = needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
            if wanted and (needed.name, *sorted(needed.extras)) not in seen:
                seen.add((needed.name, *sorted(needed.extras)))
                yield (dependency := distribution(needed.name))
                todo.append((dependency, tuple(needed.extras)))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `pip install` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / "copy" / package, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, folder / "copy")
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", *build, str(folder / "copy")], check=True)
    (built,) = folder.glob("dprepro-*.whl")
    return built


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Installed:
    """An environment without an extra."""
    return Installed(tmp_path_factory.mktemp("environment"), wheel, ())


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Installed]:
    """An environment with all extras of a laboratory."""
    environment = Installed(tmp_path_factory.mktemp("environment"), wheel, ["lab", "text", "vision"])
    yield environment
    if environment.forking is not None:
        environment.forking.stdin.close()
        environment.forking.wait()


def test_the_wheel_has_all_that_is_read_when_it_runs(wheel: Path) -> None:
    """Types, page parts, and what a laboratory begins with."""
    packed = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("dprepro", "dprepro/pipeline", "dprepro/stages"):
        wanted = {
            f"{folder}/{path.relative_to(ROOT / folder).as_posix()}"
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
        }
        assert wanted <= packed, sorted(wanted - packed)


def test_import_is_quick_and_brings_what_it_promises(bare: Installed, tmp_path: Path) -> None:
    """Without what is a laboratory's, which is not there."""
    script = (
        "import time; before = time.process_time(); import dprepro; spent = time.process_time() - before; "
        "import sys; from importlib.util import find_spec; "
        "[getattr(dprepro, name) for name in dprepro.__all__]; "
        f"others = {sorted(OF_A_LABORATORY | OF_OTHER_EXTRAS)}; "
        "print(spent, [name for name in others if name in sys.modules or find_spec(name)])"
    )
    spent, others = bare.type(f'python -c "{script}"', tmp_path).strip().split(" ", 1)
    assert float(spent) < 2
    assert others == "[]"


def test_the_library_works_beside_modules_of_ones_own(bare: Installed, tmp_path: Path) -> None:
    """All that its page shows, without a laboratory's packages, frameworks and a second process."""
    lay(tmp_path, OWN_MODULES)
    elsewhere = re.compile(
        r"^(?:import|from) (?:lightning|accelerate|transformers)\b|init_process_group", re.MULTILINE
    )
    shown = [block for block in blocks("docs/library.md") if block.language == "python"]
    assert sum(bool(elsewhere.search(block.text)) for block in shown) == 4  # tests/library/test_backward.py
    here = [block.text for block in shown if not elsewhere.search(block.text)]
    lay(tmp_path, {f"block_{place}.py": text for place, text in enumerate(here)})
    run_all = f"import runpy; [runpy.run_path(f'block_{{place}}.py') for place in range({len(here)})]"
    bare.type(f'python -c "{run_all}"', tmp_path)


def test_a_command_says_which_extra_it_lacks_and_works_with_it(
    bare: Installed, laboratory: Installed, tmp_path: Path
) -> None:
    assert "at most" in bare.type(
        "dprepro epsilon --sigma 1.1 --batch 99 --examples 999 --epochs 1", tmp_path
    )
    (tmp_path / "params.yaml").write_text(PARAMS)
    lacking = "dprepro: {}: not installed; `pip install 'dprepro[{}]'` brings it\n"
    assert bare.type("dprepro publish", tmp_path, fails=True) == lacking.format("pandas", "lab")
    laboratory.type_fast("dprepro fetch ag-news", tmp_path)
    assert "train 150, validation 20" in laboratory.type_fast("dprepro prepare ag-news", tmp_path)
    laboratory.type("dprepro account counted", tmp_path)
    assert (tmp_path / "reports/ledgers/counted.json").exists()


def test_the_page_for_authors_from_top_to_bottom(laboratory: Installed, tmp_path: Path) -> None:
    """In an empty folder, the first row shortened; what one adds touches no file of what is installed."""
    environment, page = laboratory, [*blocks("docs/laboratory.md")]
    before, folder, told = environment.digest(), tmp_path, []
    table, row = (block.text for block in page if block.language == "yaml")
    for block in page:
        if block.text == table:
            edit(folder / "papers/mine.yaml", "\ntables:\n", f"\ntables:\n{table}")
        elif block.text == row:
            edit(folder / "params.yaml", "\nrows:\n", f"\nrows:\n{row}")
            lay(folder, WRITTEN)
        for line in block.commands if block.language in CONSOLE else ():
            if line.startswith("cd "):
                folder = folder / line.removeprefix("cd ")
                edit(folder / "params.yaml", "seeds: 3", "seeds: 1")
                edit(folder / "params.yaml", "epochs: 20", "epochs: 0.3")
                stages = folder / "dvc.yaml"  # attacks take most of the time, and are the same anywhere
                stages.write_text(without_audits(stages.read_text()))
                edit(folder / "params.yaml", "levels: [{epsilon: 3}, {epsilon: 8}]", "levels: [{epsilon: 8}]")
            elif not line.startswith("pip "):
                told.append(environment.type_fast(line, folder))
    assert environment.digest() == before
    # its own paper alone, with verdicts on both tables
    assert "<title>My paper" in (folder / "reports/index.html").read_text()
    summary = (folder / "reports/summary.csv").read_text()
    assert "mine-t1-lenet5" in summary
    assert "mine-t2-signs" in summary
    assert (folder / "reports/papers/mine.html").exists()
    names = "import mlflow; print(*(one.name for one in mlflow.MlflowClient('sqlite:///mlflow.db').search_experiments()))"
    assert set(environment.type(f'python -c "{names}"', folder).split()) == {"Default", "mine"}
    # the second method trained nothing again, and all is vouched for
    plan = told[2]
    assert "mine-t2-signs: 2 trainings (never ran)" in plan
    assert "mine-t1-lenet5" not in plan
    assert ", 0 wrong" in told[-2]
    # in a clone, as CI does it
    environment.type("git clone --quiet . ../clone", folder)
    workflow = YAML(typ="safe").load(folder / ".github/workflows/report.yaml")
    for step in workflow["jobs"]["report"]["steps"]:
        if not step.get("run", "pip ").startswith("pip "):
            environment.type_fast(step["run"], tmp_path / "clone")
    rendered = [place / "reports/index.html" for place in (folder, tmp_path / "clone")]
    assert rendered[0].read_bytes() == rendered[1].read_bytes()
    # pip can install what requirements.txt names
    line = (folder / "requirements.txt").read_text()
    named = re.fullmatch(r"dprepro\[lab\](?:==(\S+)| @ (file://\S+))\n", line)
    assert named[1] in (None, environment.type("dprepro --version", folder).split()[1])
    assert not named[2] or Path(unquote(urlsplit(named[2]).path)).exists()


def _own_table(folder: Path) -> None:
    """A table with a column of texts, and its schema."""
    draw = np.random.default_rng(0)
    lines = [
        f"{('good', 'bad')[number % 2]},{number % 2},{draw.integers(50) + 40 * (number % 2)}"
        for number in range(120)
    ]
    (folder / "mine.csv").write_text("\n".join(["text,label,number", *lines]) + "\n")
    (folder / "mine.yaml").write_text("classes: [good, bad]\ncolumns: {number: {range: [0, 100]}}\n")


def test_private_data_take_six_commands(laboratory: Installed, tmp_path: Path) -> None:
    """From an empty folder to a ledger, predictions and a commit, beside modules of one's own."""
    _own_table(tmp_path)
    folder = tmp_path / "lab"
    laboratory.type_fast("dprepro init --private lab", tmp_path)
    lay(folder, OWN_MODULES)
    for line in (
        "dprepro new data mine --table ../mine.csv --label text --schema ../mine.yaml",
        "dprepro new row first --data mine --model logistic --method dpsgd --epsilon 8 --epochs 1",
        "dvc repro evaluate@first ledger@first",
        "dprepro export first out",
    ):
        laboratory.type_fast(line, folder)
        if line.startswith("dprepro new row "):
            take_renyi_dp(folder)
    assert "class" in laboratory.type_fast("dprepro predict out ../mine.csv", folder)
    for record in ("evaluations/first.jsonl", "ledgers/first.json"):
        assert (folder / "reports" / record).exists(), record
    assert "ε ≤ " in (folder / "out/privacy-statement.html").read_text()
    laboratory.type("git add params.yaml stages.py pipeline", folder)
    laboratory.type("git commit --quiet --message first", folder)
    (folder / "copy.csv").write_bytes((tmp_path / "mine.csv").read_bytes())
    laboratory.type("git add --force copy.csv", folder)
    assert "copy.csv" in laboratory.type("git commit --quiet --message rows", folder, fails=True)
