"""The index, the table of all results, and what is said of both elsewhere."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dprepro.pipeline.reporting import papers, report
from dprepro.pipeline.reporting.caveats import caveats_at
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.prose import findings
from dprepro.pipeline.reporting.report import Report
from tests.reporting import readme
from tests.reporting.made_up import toys
from tests.reporting.markup import check

ROOT = Path(__file__).parents[2]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_every_page_loads_nothing_and_leads_somewhere(written: Report) -> None:
    folder = written.index.parent
    for path in (written.index, folder / "results.html", folder / "ledger.html", *written.pages.values()):
        check(path)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_word_stands_out_from_its_ground(scheme: int) -> None:
    """By at least 4.5 to 1, as the Web Content Accessibility Guidelines ask of small print."""
    css = read(ROOT / "pipeline/reporting/pages/style.css")
    colours = dict(
        re.findall(r"--([\w-]+): (#\w{6})", re.findall(r":root \{(.*?)\}", css, re.DOTALL)[scheme])
    )
    tones = ("good", "bad", "warn", "plain", "faint")
    pairs = [(ink, ground) for ink in ("ink", "soft", "link", *tones) for ground in ("ground", "card")]
    pairs += [(tone, f"{tone}-ground") for tone in tones] + [("ink", "bad-ground"), ("soft", "faint-ground")]
    for ink, ground in pairs:
        dark, light = sorted(luminance(colours[name]) for name in (ink, ground))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb``."""
    shares = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_cell_has_the_training_budget_of_its_own_level() -> None:
    levels = [{"sigma": 0}, {"sigma": 1, "epochs": 80}]
    declared = toys.settings(row={"levels": levels, "budget": "own"})
    result = toys.judged(toys.paper(), declared, toys.record("row", declared, sigma_0=(90.0,) * 3))
    (row,) = result.tables[0].rows
    assert [caveat.words for caveat in row.caveats] == ["own budget: 50 to 80 epochs"]
    for level, epochs in (("sigma=0", 50), ("sigma=1", 80)):
        assert [caveat.words for caveat in caveats_at(row, level)] == [f"own budget: {epochs} epochs"]


def test_numbers_of_a_value_that_is_no_longer_judged_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics/gone.json").touch()
    report._put({"metrics/paper.json": "{}"}, tmp_path)
    assert [path.name for path in (tmp_path / "metrics").iterdir()] == ["paper.json"]


def test_a_finding_quotes_only_what_it_names() -> None:
    cells = {"one": {"row": "some-row", "at": "epsilon=3"}}
    papers.Finding.model_validate({"says": "It is {one.ours}.", "cells": cells, "table": "t5"})
    for wrong in ("{two.ours}", "{one.secret}", "{one}"):
        with pytest.raises(ValidationError, match=r"allowed: one\.ours, one\.paper"):
            papers.Finding.model_validate({"says": wrong, "cells": cells, "table": "t5"})
    for change, complaint in (
        ({"cells": {}}, "needs 'cells', 'contrasts' or 'claims'"),
        ({"claims": {"c": "proven"}}, "claims: proven; allowed: reproduced"),
        ({"provided": [{"left": "one", "right": "two", "above": 0}]}, "provided: two; allowed: one"),
    ):
        with pytest.raises(ValidationError, match=complaint):
            papers.Finding.model_validate({"says": "So.", "cells": cells, "table": "t5", **change})


SAYS = {"says": "{a.ours} and {b.ours}: {a.verdict}", "table": "t"}
CELLS = {name: {"row": key, "at": "sigma=0"} for name, key in (("a", "one"), ("b", "two"))}


def sentences(finding: dict[str, Any], accuracy: float = 90.0, seeds: int = 3, **row: Any) -> list[str]:
    """What is said of two rows of which the second is as told."""
    searches = {"s": {"row": "one", "grid": {"learning_rate": [0.1]}}}
    declared = toys.settings(one={"search": "s"}, two={"search": "s", **row}, searches=searches)
    reached = {"one": (90.1, 90.2, 90.3), "two": (accuracy, accuracy + 0.1, accuracy + 0.2)[:seeds]}
    records = [toys.record(key, declared, sigma_0=accuracies) for key, accuracies in reached.items()]
    test = {"kind": "difference", "left": "t/one", "right": 95, "at": ["sigma=0"], "above": 0}
    values = {"sigma=0": 90.0}
    paper = toys.paper(claims=[toys.claim(test)], values=values, findings=[{**SAYS, **finding}])
    result = toys.judged(paper, declared, *records)
    return [said.text for said in findings.render_findings(result)]


def test_a_finding_has_seeds_intervals_and_budget_in_it() -> None:
    said = "90.20 ± 0.25 % (n = 3) and 90.10 ± 0.25 % (n = 3): agrees (At the paper's settings, exploratory.)"
    assert sentences({"cells": CELLS}) == [said]
    # that of the cell: another level of the row may have been trained for longer
    assert sentences({"cells": CELLS}, levels=[{"sigma": 0}, {"sigma": 1, "epochs": 80}]) == [said]


# the last stands beside a row that was searched
@pytest.mark.parametrize("change", [{"budget": "reduced"}, {"seeds": 1}, {"search": None}])
def test_a_finding_is_refused_that_its_rows_cannot_carry(change: dict[str, Any]) -> None:
    assert not sentences({"cells": CELLS}, **change)


@pytest.mark.parametrize(("accuracy", "said"), [(80.0, True), (89.5, False), (100.0, False)])
def test_a_finding_is_said_where_what_it_needs_holds(accuracy: float, said: bool) -> None:
    needs = [{"left": "a", "right": "b", "above": 1}]
    assert bool(sentences({"cells": CELLS, "provided": needs}, accuracy)) == said


@pytest.mark.parametrize(("status", "said"), [("not reproduced", True), ("reproduced", False)])
def test_a_finding_may_rest_on_how_a_claim_came_out(status: str, said: bool) -> None:
    assert sentences({"says": "So.", "claims": {"c": status}}) == (["So."] if said else [])


def test_every_finding_is_said_by_the_records_here(papers_here: list[PaperResult]) -> None:
    for result in papers_here:
        assert len(findings.render_findings(result)) == len(result.paper.findings) > 0, result.key


def test_the_readme_says_what_the_records_say_and_nothing_else(papers_here: list[PaperResult]) -> None:
    assert readme.written() == readme.generated(papers_here), (
        "`python -m tests.reporting.readme` writes it anew"
    )
