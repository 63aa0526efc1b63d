"""Pages on data of one's own, typed as they stand: from files to ledgers and predictions.

Of docs/private-model.md all but the accountant.
"""

import csv
import json
import re
from contextlib import chdir
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dprepro.pipeline import params, verification
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.results import records
from tests.commands import typed
from tests.docs.blocks import ROOT, Block, begin, blocks
from tests.laboratory import take_renyi_dp
from tests.made_records import stripes

PAGE = [*blocks("docs/own-data.md")]


def of(language: str) -> list[Block]:
    return [block for block in PAGE if block.language == language]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing declared, where the page's first blocks were typed."""
    folder = tmp_path_factory.mktemp("own")
    begin(folder)
    images, labels = stripes(1000)
    (script,) = of("python")
    with chdir(folder):
        exec(script.text, {"images": images, "labels": labels})
    for line in of("console")[0].commands:
        typed(line, folder)
    return folder


def test_it_ends_with_an_accuracy_and_a_ledger(project: Path) -> None:
    (measured,) = records.read_evaluation("my-row", project).trainings
    assert measured.metrics["test_accuracy"] > 0.3  # a tenth is chance; by chance some classes are not learnt
    assert records.read_ledgers("my-row", project).entries[0].ledger.epsilon_upper <= 3


def test_its_report_is_in_its_own_words(project: Path) -> None:
    typed("dprepro report", project)
    first = (project / "reports/index.html").read_text()
    assert "Models and their privacy" in first
    assert re.search(r"reproduce|Rebuild|<th>paper", first.partition("<main>")[2]) is None


def test_everything_is_vouched_for(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    wrong = {check.subject: check.wrong for check in verification.verify(params.load())}
    assert {"data/raw/mine", "data/prepared/mine", "my-row"} <= wrong.keys()
    assert set(wrong.values()) == {None}


def test_the_entries_are_those_of_the_page(project: Path) -> None:
    typed = of("yaml")[0].text
    text = (project / "params.yaml").read_text()
    written = re.sub(r'"sha256:\w+"', '"sha256:..."', text[text.index("own:") : text.index("starts:")])
    assert written == typed
    digest = params.load(project / "params.yaml").own["mine"].digest
    assert digest == digest_file(project / "mine.npz")


def test_its_search_is_one(project: Path) -> None:
    typed = YAML(typ="safe").load(of("yaml")[1].text)["searches"]
    declared = YAML(typ="safe").load(project / "params.yaml")
    declared["rows"]["my-row"]["search"] = "my-row"
    settings = params.parse({**declared, "searches": typed})
    (search,) = (
        line for block in of("console") for line in block.commands if line.startswith("dprepro search")
    )
    assert settings.searches[search.split()[-1]].row == "my-row"


def test_the_page_of_tables_runs_from_top_to_bottom(tmp_path: Path) -> None:
    begin(tmp_path)
    schema = tmp_path / "patients.schema.yaml"
    for block in blocks("docs/tables.md"):
        if block.language == "python":
            with chdir(tmp_path):
                exec(block.text, {})
        elif block.language == "yaml":
            columns = YAML(typ="safe").load(schema.read_text())["columns"]
            assert columns == dict.fromkeys(YAML(typ="safe").load(block.text)["columns"])
            schema.write_text(block.text)
        else:
            for line in block.commands:
                typed(line, tmp_path, tmp_path)
    (measured,) = records.read_evaluation("risk", tmp_path).trainings
    assert measured.metrics["test_accuracy"] > 0.9  # six of ten are well
    (entry,) = records.read_ledgers("risk", tmp_path).entries
    assert 0.9 < entry.ledger.epsilon_upper <= 1
    with open(tmp_path / "predicted.csv") as file:
        predicted = [*csv.DictReader(file)]
    assert len(predicted) == 50_000
    assert [*predicted[0]][:5] == ["age", "pressure", "ward", "outcome", "class"]


def test_the_page_of_a_private_model_runs_from_top_to_bottom(tmp_path: Path) -> None:
    begin(tmp_path, library=True)
    text = (ROOT / "docs/private-model.md").read_text(encoding="utf-8")
    (saved,) = re.findall(r"Save this as `(\S+)`", text)
    for block in blocks("docs/private-model.md"):
        if block.language == "python" and "def build" in block.text:
            (tmp_path / saved).write_text(block.text)
        elif block.language == "python":
            with chdir(tmp_path):
                exec(block.text, {})
        else:
            for line in block.commands:
                typed(line, tmp_path, tmp_path)
                if line.startswith("dprepro new row "):
                    take_renyi_dp(tmp_path)
    with open(tmp_path / "predictions.csv") as file:
        (predicted,) = csv.DictReader(file)
    assert (predicted["file"], predicted["class"]) == ("new.png", "0")
    ledgers = records.read_ledgers("my-model", tmp_path)
    folder = tmp_path / "exported"
    told_of_it = json.loads((folder / "config.json").read_text())["privacy"]
    assert told_of_it["epsilon"] == ledgers.entries[0].ledger.epsilon_upper < 8
    assert told_of_it["audits"]
    # a list of what the folder has, and nothing else
    assert {path.name for path in folder.iterdir()} == set(re.findall(r"^- `(\S+)`: ", text, re.MULTILINE))
