import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.params import PAPERS
from pipeline.params import load as load_settings
from pipeline.reporting import papers
from pipeline.reporting.judging.claim_test import ClaimTest
from pipeline.reporting.wording import printed

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


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        ("t2/lenet-300-100", "98.20 ± 0.07, 97.70 ± 0.30, 96.98 ± 0.12, No-convergence, No-convergence"),
        ("t2/bn-lenet-300-100", "98.20 ± 0.10, 98.10 ± 0.10, 98.07 ± 0.11, 98.07 ± 0.12, 98.13 ± 0.08"),
        ("t2/ln-lenet-300-100", "98.04 ± 0.16, 98.00 ± 0.10, 98.08 ± 0.14, 98.04 ± 0.09, 98.03 ± 0.17"),
        ("t2/lenet5", "99.20 ± 0.02, 98.94 ± 0.07, 98.40 ± 0.03, No-convergence, No-convergence"),
        ("t2/bn-lenet5", "99.20 ± 0.08, 99.21 ± 0.05, 99.18 ± 0.06, 99.24 ± 0.04, 99.25 ± 0.07"),
        ("t2/ln-lenet5", "99.16 ± 0.08, 99.14 ± 0.06, 99.13 ± 0.07, 99.21 ± 0.05, 99.19 ± 0.07"),
        ("t3/resnet18", "93.50 ± 0.04, 89.05 ± 0.60, 89.41 ± 0.67, 86.76 ± 1.30, 87.83 ± 0.87"),
        ("t3/resnet18-mod", "93.60 ± 0.18, 88.65 ± 1.22, 88.16 ± 1.22, 85.46 ± 1.21, 83.95 ± 2.51"),
        ("t3/bn-resnet18", "93.55 ± 0.04, 93.59 ± 0.18, 93.46 ± 0.24, 92.72 ± 0.26, 92.10 ± 0.28"),
        ("t3/vgg16", "91.21 ± 0.16, 88.89 ± 0.56, 84.59 ± 6.11, 63.12 ± 8.21, No-convergence"),
        ("t3/vgg16-mod", "91.18 ± 0.20, 88.87 ± 0.59, 82.58 ± 6.91, 22.58 ± 5.00, No-convergence"),
        ("t3/bn-vgg16", "91.75 ± 0.22, 91.69 ± 0.20, 91.56 ± 0.24, 90.95 ± 0.25, 90.35 ± 0.14"),
        ("t4/bilstm", "89.34, 89.57, 89.01, 66.32, 24.76"),
        ("t4/ln-bilstm", "89.34, 88.87, 88.62, 85.74, 82.41"),
        ("t6/tf-tutorial", "80.0, 73.0, 70.0, 67.0"),
        ("t6/ln-tf-tutorial", "80.0, 73.3, 70.6, 67.0"),
        ("t6/bn-tf-tutorial", "80.0, 74.1, 71.2, 69.8"),
        ("t6/bn-vgg", "80.7, 79.5, 79.1, 77.4"),
        ("t6/vgg", ""),
        ("t5/lenet5", "99.20, 97.01, 96.34, 94.11, 91.10, 83.00, 78.96"),
        ("t5/ln-lenet5", "99.20, 97.35, 97.05, 96.68, 94.81, 87.45, 75.76"),
        ("t5/bn-lenet5", "99.20, 98.68, 98.18, 97.61, 96.83, 90.68, 88.15"),
        ("t7/bilstm", "88.47, 83.86, 80.00, 81.14, 77.88, 37.49"),
        ("t7/ln-bilstm", "88.18, 84.34, 82.51, 82.03, 79.16, 50.09"),
    ],
)
def test_tables_are_typed_as_printed(line: str, cells: str) -> None:
    paper = papers.load("davody2020")
    table, values = paper.tables[line.partition("/")[0]], paper.lines[line].values
    shown = [printed(values[level], table.decimals) for level in table.columns if level in values]
    assert ", ".join(shown) == cells


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "nguyen2023",
            "f3/sgd 64 90.24, f3/bc-alc 64 67, f6/bc-alc 0.9 59.02, f7/bc-alc 0.1 40.58, "
            "f9a/bc-alc 0.14 43.42, f10/sgd 64 80.55, f10/sgd 1024 61.19, f11/bc-alc 0.2 84.80, "
            "f12a/bc-alc 64 50.38, f12a/bc-alc 1024 45.11, f12b/bc-alc 1.5 67, f12b/bc-alc 2.5 50.38, "
            "f15/css-constant 64 21.12, f18/alc 64 66.66, f18/fgc 64 46.35, gdp/bn-lenet5 2.5 0.52, "
            "gdp/bn-lenet5 1.5 1.99, gdp/more-data 1.5 0.51",
        ),
        (
            "phan2017",
            "f4a/adlm 0.25 90.2, f4a/ilm 0.25 88.46, f4a/psgd 0.25 82.09, f4b/adlm 0.5 93.66, "
            "f4b/ilm 0.5 92.39, f4b/psgd 0.5 88.59",
        ),
        (
            "sander2022",
            "t4/imagenet 18000 8.00, t4/imagenet 72000 7.97, t5/5k 16 59.9, t5/28k 16 71.1, t5/49k 16 72.9, "
            "t5/50k 16 74.0, t5-epsilon/cifar10 5001 150.3, t5-epsilon/cifar10 28400 13.7, "
            "t5-epsilon/cifar10 48800 7.3, t5-epsilon/cifar10 49990 7.1, t6/imagenet 640583 17.98, "
            "t6/imagenet 1281167 8.00, t6/imagenet:epsilon_tan 640583 18.06, "
            "t6/imagenet:epsilon_tan 1281167 8.26",
        ),
    ],
)
def test_the_values_that_a_text_prints_are_typed(name: str, values: str) -> None:
    paper = papers.load(name)
    typed = [
        f"{reference} {level.partition('=')[2]} {printed(value, paper.table_of(reference).decimals)}"
        for reference, line in paper.lines.items()
        for level, value in line.values.items()
    ]
    assert ", ".join(typed) == values


@pytest.mark.parametrize(
    ("name", "contradicted"),
    [
        (
            "davody2020",
            {
                "same-accuracy": "BN-ResNet-18, σ = 2 − σ = 0: −1.45",
                "normalization-helps": "DPSGD (LN-LeNet-5) − DPSGD (LeNet-5) at ε = 0.05: −3.20",
                "normalization-helps-cifar-and-text": "",
            },
        ),
        ("nguyen2023", {"thirty-five": "BC + ALC − 35 at C = 0.14: +8.42, to be above -2 and below 2"}),
        ("phan2017", {}),
        ("sander2022", {}),
    ],
)
def test_the_sentences_that_a_papers_own_numbers_contradict(name: str, contradicted: dict[str, str]) -> None:
    paper = papers.load(name)
    outcomes = [
        (claim.key, outcome)
        for claim in paper.claims
        for test in claim.tests
        for outcome in test.on_paper(paper)
    ]
    assert len(outcomes) >= 5
    failing = [(key, outcome.text) for key, outcome in outcomes if outcome.verdict == "fails"]
    assert [key for key, _ in failing] == list(contradicted)
    assert all(text.startswith(contradicted[key]) for key, text in failing)


def test_noisy_running_averages_have_a_line_of_their_own_with_a_comma() -> None:
    label = "DPSGD (BN-LeNet-5), noisy running averages"
    line, variant = papers.load("davody2020").tables["averages"].line_of(f"{label}, momentum 0.5")
    assert (line.label if line else None, variant) == (label, "momentum 0.5")


def test_cells_may_be_numbers_with_errors_or_words(tmp_path: Path) -> None:
    values, whole = (line.values for line in load(tmp_path, SMALL).tables["t2"].lines)
    assert (values["sigma=0"].value, values["sigma=0"].error) == (98.2, 0.07)
    assert (values["sigma=1"].value, values["sigma=1"].words) == (None, "No-convergence")
    # a number without decimals is shown and rounded as printed
    assert (printed(whole["sigma=0"], 2), whole["sigma=0"].rounding(2)) == ("99", 0.5)
    exact = load(tmp_path, SMALL.replace("sigma=0: 99}", "sigma=0: 99.0}")).tables["t2"].lines[1].values
    assert (printed(exact["sigma=0"], 2), exact["sigma=0"].rounding(2)) == ("99.00", 0.005)


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
    line, change = load(tmp_path, SMALL).tables["t2"].line_of(label)
    assert (line.key if line else None, change) == (key, variant)


def claiming(**test: object) -> str:
    """A claim with this test of `SMALL`'s lines."""
    values = {"kind": "difference", "left": "t2/lenet", "right": 10, "at": ["sigma=0"], "above": 0} | test
    told = {key: value for key, value in values.items() if value is not None}
    return f"claims: {json.dumps([{'key': 'a', 'says': 'b', 'where': 'c', 'tests': [told]}])}"


LINES = "there are: t2/lenet, t2/lenet:last, t2/lenet-big"
FIGURES = "gradient_norms, layer_norms, relevance_pictures, tradeoff"
SLOWDOWN = {"kind": "slowdown", "of": "t2/lenet", "from": "sigma=0", "to": "sigma=1"}
CLAIMS, BIG = "claims: []", "values: {sigma=0: 99}"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("title: A paper", "title: A paper\nauthor: me", "small.yaml: author: Extra inputs"),
        ("title: A paper", "title: [", "not YAML"),
        ("sigma=1: No", "sigma=3: No", "not in columns: sigma=3"),
        ("axis: noise σ", "axis: noise σ\n    figures: [trade]", f"no figure trade; allowed: {FIGURES}"),
        ("axis: noise σ", "axis: noise σ\n    slowdown: sigma=3", "slowdown: not in columns: sigma=3"),
        ("    margin: 1\n", "", "margin: a table that prints values needs one"),
        ("margin: 1", "margin: 3", "margin: above 2 'margin_why' must say why"),
        ("margin: 1", "margin: 1\n    noises: [loud]", "noises: not in the table's 'also': loud"),
        (BIG, "also: {loud: {sigma=0: 2.0}}", "lenet-big: also: not in the table's"),
        (BIG, "also: {last: {sigma=2: 2.0}}", "lenet-big: not in columns: sigma=2"),
        (CLAIMS, claiming(left="t2/vgg"), f"no line 't2/vgg'; {LINES}"),
        (CLAIMS, claiming(kind="ratio", right="t2/lenet:loud"), f"no line 't2/lenet:loud'; {LINES}"),
        (CLAIMS, claiming(above=None), "needs 'above', 'below' or both"),
        (
            CLAIMS,
            claiming(**dict.fromkeys(("left", "right", "at", "above")), **SLOWDOWN),
            "needs 'above', 'below'",
        ),
        (CLAIMS, claiming(at=[]), "at least 1 item"),
        (CLAIMS, "claims: [{key: a, says: b, where: c}]", "needs either 'tests' or 'untested'"),
        ("98.20 ± 0.07", "98.20±0.07", "'98.20±0.07'; allowed: a number, '98.20 ± 0.07', or words"),
        ("98.20 ± 0.07", "'98,2'", "'98,2'; allowed: a number"),
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


def compared(test: ClaimTest) -> Iterator[tuple[str, str]]:
    """(line, level) of everything that a test names, whatever its kind; some look at all levels there are."""
    said = test.model_dump()
    shifted = said.pop("right_at", None)
    if shifted == "previous":
        shifted = None
    said.pop("since", None)
    given = (value if isinstance(value, list) else [value] for value in said.values())
    levels = {word for words in given for word in words if isinstance(word, str) and "=" in word}
    for reference in test.references:
        if shifted and reference == said["right"]:
            yield reference, shifted
        if not shifted or reference == said["left"]:
            yield from ((reference, level) for level in levels)


def test_every_row_of_a_paper_has_a_line_and_every_claim_its_levels() -> None:
    known: dict[str, set[str]] = defaultdict(set)
    loaded = {name: papers.load(name) for name in NAMES}
    for key, row in load_settings(ROOT / "params.yaml").lines.items():
        table = loaded[row.paper].tables[row.table]
        line, _ = table.line_of(row.label)
        assert line is not None, f"{key}: {row.paper} has no line {row.label!r}"
        known[f"{row.paper}/{row.table}/{line.key}"] |= {row.level(own) for own in row.resolved}
    for name, paper in loaded.items():
        for reference in paper.lines:
            known[f"{name}/{reference}"] |= set(paper.tables[reference.partition("/")[0]].columns)
        looked_at = {
            (claim.key, reference.partition(":")[0], level)
            for claim in paper.claims
            for test in claim.tests
            for reference, level in compared(test)
            if not level.startswith("best")
        }
        assert looked_at
        assert not {place for place in looked_at if place[2] not in known[f"{name}/{place[1]}"]}


def test_a_paper_without_a_file_is_only_its_name() -> None:
    assert papers.load("my-own").tables == {}
