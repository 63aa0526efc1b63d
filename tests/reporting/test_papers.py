import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from dprepro.errors import UserError
from dprepro.pipeline.params import PAPERS, papers
from dprepro.pipeline.params import load as load_settings
from dprepro.pipeline.reporting.wording import printed

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / PAPERS).glob("*.yaml"))

SMALL = """
title: A paper
tables:
  t2:
    name: Table 2
    title: Noisy weights
    axis: noise σ
    margin: 1
    also: {last: last weights}
    columns: [sigma=0, sigma=1]
    lines:
      - {key: lenet, label: LeNet, values: {sigma=0: 98.20 ± 0.07, sigma=1: No-convergence}}
      - {key: lenet-big, label: 'LeNet, big', values: {sigma=0: 99}}
claims: []
"""


def load(folder: Path, text: str) -> papers.Paper:
    (folder / "small.yaml").write_text(text)
    return papers.load("small", folder)


def test_cells_may_be_numbers_with_errors_or_words(tmp_path: Path) -> None:
    values, whole = (line.values for line in load(tmp_path, SMALL).tables["t2"].lines)
    assert (values["sigma=0"].value, values["sigma=0"].error) == (98.2, 0.07)
    assert (values["sigma=1"].value, values["sigma=1"].words) == (None, "No-convergence")
    # a number without decimals is shown and rounded as printed
    assert (printed(whole["sigma=0"], 2), whole["sigma=0"].rounding(2)) == ("99", 0.5)
    exact = load(tmp_path, SMALL.replace("sigma=0: 99}", "sigma=0: 99.0}")).tables["t2"].lines[1].values
    assert (printed(exact["sigma=0"], 2), exact["sigma=0"].rounding(2)) == ("99.00", 0.005)


def claiming(**test: object) -> str:
    """A claim with this test of `SMALL`'s lines."""
    values = {"kind": "effect", "left": "t2/lenet", "right": 10, "at": ["sigma=0"], "above": 0} | test
    told = {key: value for key, value in values.items() if value is not None}
    return f"claims: {json.dumps([{'key': 'a', 'says': 'b', 'where': 'c', 'tests': [told]}])}"


LINES = "there are: t2/lenet, t2/lenet:last, t2/lenet-big"
CLAIMS, BIG = "claims: []", "values: {sigma=0: 99}"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("title: A paper", "title: A paper\nauthor: me", "small.yaml: author: unknown key"),
        ("title: A paper", "title: A\ntitle: B", 'small.yaml: line 3: found duplicate key "title"; allowed'),
        ("sigma=1: No", "sigma=3: No", "not in columns: sigma=3"),
        ("    margin: 1\n", "", "margin: a table that prints values needs one"),
        ("margin: 1", "margin: 3", "margin: 3; allowed: at most 2"),
        ("margin: 1", "margin: 1\n    noises: [loud]", "noises: not in the table's 'also': loud"),
        (BIG, "also: {loud: {sigma=0: 2.0}}", "lenet-big: also: not in the table's"),
        (CLAIMS, claiming(left="t2/vgg"), f"no line 't2/vgg'; {LINES}"),
        (CLAIMS, claiming(above=None), "needs 'above', 'below' or both"),
        ("title: A paper", "title: A paper\nheadlines: [{says: a, claim: b}]", "headlines: no claim 'b'"),
        ("title: A paper", "title: A paper\nheadlines: [{says: a}]", "needs 'claim', or 'of' and 'at'"),
        (CLAIMS, "claims: [{key: a, says: b, where: c}]", "needs one of 'tests', 'unit_test' and 'untested'"),
        ("98.20 ± 0.07", "98.20±0.07", "'98.20±0.07'; allowed: a number, '98.20 ± 0.07', or words"),
        ("98.20 ± 0.07", ".nan", "small.yaml: tables.t2.lines.0.values.sigma=0.value: nan is not allowed"),
        ("98.20 ± 0.07", "982.0", "lenet: sigma=0: 982 percent; allowed: 0 to 100"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    with pytest.raises(UserError) as problem:
        load(tmp_path, SMALL.replace(old, new))
    assert complaint in str(problem.value)
    assert len(str(problem.value).splitlines()) == 1


def test_a_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("title: café".encode("latin-1"))
    (tmp_path / "folder.yaml").mkdir()
    for name, complaint in (("latin", "not YAML"), ("folder", "can't be read")):
        with pytest.raises(UserError, match=rf"{name}\.yaml: {complaint}"):
            papers.load(name, tmp_path)


def compared(test: papers.Test) -> Iterator[tuple[str, str]]:
    """(line, level) of everything that a test names, whatever its kind; some look at all levels there are."""
    said = test.model_dump()
    shifted = said.pop("right_at", None)
    if shifted == "previous":
        shifted = None
    given = (value if isinstance(value, list) else [value] for value in said.values())
    levels = {word for words in given for word in words if isinstance(word, str) and "=" in word}
    for reference in test.references:
        if shifted and reference == said.get("right", said.get("of")):
            yield reference, shifted
        if not shifted or reference == said.get("left", said.get("of")):
            yield from ((reference, level) for level in levels)


def test_every_row_of_a_paper_has_a_line_and_every_claim_its_levels() -> None:
    known: dict[str, set[str]] = defaultdict(set)
    loaded = {name: papers.load(name) for name in NAMES}
    for key, row in load_settings(ROOT / "params.yaml").lines.items():
        table = loaded[row.paper].tables[row.table]
        assert row.line in {line.key for line in table.lines}, f"{key}: {row.paper} has no line {row.line!r}"
        known[f"{row.paper}/{row.table}/{row.line}"] |= {row.level(configured) for configured in row.resolved}
    for name, paper in loaded.items():
        for reference in paper.lines:
            known[f"{name}/{reference}"] |= set(paper.tables[reference.partition("/")[0]].columns)
        looked_at = {
            (claim.key, reference.partition(":")[0], level)
            for claim in paper.claims
            for test in claim.tests
            for reference, level in compared(test)
        }
        assert looked_at
        assert not {place for place in looked_at if place[2] not in known[f"{name}/{place[1]}"]}


def test_planned_rows_are_judged_by_the_margin_of_their_plan() -> None:
    settings = load_settings(ROOT / "params.yaml")
    planned = [row for row in settings.rows.values() if row.plan]
    assert len(planned) > 50
    for row in planned:
        assert papers.load(row.paper).tables[row.table].margin == settings.plans[str(row.plan)].margin, (
            row.plan
        )


def test_a_paper_without_a_file_is_only_its_name() -> None:
    assert papers.load("my-own").tables == {}


def test_unit_tests_that_decide_claims_exist() -> None:
    decided = [claim.unit_test for name in NAMES for claim in papers.load(name).claims]
    named = [unit_test.by.split("::") for unit_test in decided if unit_test]
    assert named
    for file, name in named:
        assert f"\ndef {name}(" in (ROOT / file).read_text(), name
