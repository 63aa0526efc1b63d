"""docs/private-model.md, typed but for its accountant: from files to a folder for other people."""

import csv
import json
import re
from contextlib import chdir
from pathlib import Path

from dprepro.pipeline.results import records
from tests.commands import typed
from tests.docs.blocks import ROOT, begin, blocks
from tests.laboratory import take_renyi_dp
from tests.not_none import not_none

PAGE = [*blocks("docs/private-model.md")]
TEXT = (ROOT / "docs/private-model.md").read_text(encoding="utf-8")


def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    begin(tmp_path, library=True)
    (saved,) = re.findall(r"Save this as `(\S+)`", TEXT)
    for block in PAGE:
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
    ledgers = not_none(records.read_ledgers("my-model", tmp_path))
    folder = tmp_path / "exported"
    told_of_it = json.loads((folder / "config.json").read_text())["privacy"]
    assert told_of_it["epsilon"] == ledgers.entries[0].ledger.epsilon_upper < 8
    assert told_of_it["audits"]
    # a list of what the folder has, and nothing else
    assert {path.name for path in folder.iterdir()} == set(re.findall(r"^- `(\S+)`: ", TEXT, re.MULTILINE))
