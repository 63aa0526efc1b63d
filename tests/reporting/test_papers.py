from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.reporting import papers

SMALL = """
title: A paper
tables:
  t2:
    name: Table 2
    title: Noisy weights
    axis: noise σ
    columns: [sigma=0, sigma=1]
    lines:
      - {key: lenet, label: LeNet, values: {sigma=0: 98.20 ± 0.07, sigma=1: No-convergence}}
      - {key: lenet-big, label: 'LeNet, big', values: {sigma=0: 99}}
claims: []
"""


def load(folder: Path, text: str) -> papers.Paper:
    (folder / "small.yaml").write_text(text)
    return papers.load("small", folder)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("lenet5", [99.20, 97.01, 96.34, 94.11, 91.10, 83.00, 78.96]),
        ("ln-lenet5", [99.20, 97.35, 97.05, 96.68, 94.81, 87.45, 75.76]),
        ("bn-lenet5", [99.20, 98.68, 98.18, 97.61, 96.83, 90.68, 88.15]),
    ],
)
def test_table_5_is_typed_as_printed(line: str, values: list[float]) -> None:
    paper = papers.load("davody2020")
    printed = paper.lines[f"t5/{line}"].values
    assert [printed[level].value for level in paper.tables["t5"].columns] == values


def test_every_paper_file_is_a_paper() -> None:
    assert papers.names()
    for name in papers.names():
        assert papers.load(name).tables


def test_cells_may_be_numbers_with_errors_or_words(tmp_path: Path) -> None:
    values = load(tmp_path, SMALL).tables["t2"].lines[0].values
    assert (values["sigma=0"].value, values["sigma=0"].error) == (98.2, 0.07)
    assert (values["sigma=1"].value, values["sigma=1"].words) == (None, "No-convergence")


@pytest.mark.parametrize(
    ("label", "key", "variant"),
    [
        ("LeNet", "lenet", ""),
        ("LeNet, ten times the noise", "lenet", "ten times the noise"),
        ("LeNet, big", "lenet-big", ""),
        ("LeNet, big, slow", "lenet-big", "slow"),
        ("LeNets", None, ""),
    ],
)
def test_a_row_belongs_to_the_line_its_label_starts_with(
    tmp_path: Path, label: str, key: str | None, variant: str
) -> None:
    line, found = load(tmp_path, SMALL).tables["t2"].line_of(label)
    assert (line.key if line else None, found) == (key, variant)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("title: A paper", "title: A paper\nauthor: me", "small.yaml: author: Extra inputs"),
        ("sigma=1: No", "sigma=3: No", "not in columns: sigma=3"),
        (
            "claims: []",
            "claims: [{key: a, says: b, where: c, tests: "
            "[{kind: difference, left: t2/vgg, right: t2/lenet, at: [sigma=0], above: 0}]}]",
            "no line 't2/vgg'; there are: t2/lenet, t2/lenet-big",
        ),
        (
            "claims: []",
            "claims: [{key: a, says: b, where: c, tests: "
            "[{kind: difference, left: t2/lenet, right: 10, at: [sigma=0]}]}]",
            "needs 'above', 'below' or both",
        ),
        ("title: A paper", "title: [", "not YAML"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    with pytest.raises(UserError) as problem:
        load(tmp_path, SMALL.replace(old, new))
    assert complaint in str(problem.value)
    assert len(str(problem.value).splitlines()) == 1


def test_a_paper_without_a_file_is_only_its_name() -> None:
    assert papers.load("my-own").tables == {}
