"""Contrasts and verdicts of the committed CSV files, recomputed from records by csv, json and scipy alone."""

import csv
import json
from math import copysign, hypot, sqrt
from pathlib import Path
from statistics import fmean, variance

import pytest
from scipy.stats import norm, t

REPORTS = Path(__file__).parents[2] / "reports"
SIDES = ("left", "right")
NORMAL = float(norm.ppf(0.975))
TESTED = {"mnist": 10_000, "cifar10": 10_000}  # test examples; all others are of AG News
SUMMARY = {
    (line["row"], line["level"]): line
    for line in csv.DictReader((REPORTS / "summary.csv").open())
    if line["metric_unit"] == "percent"
}
CONTRASTS = [line for line in csv.DictReader((REPORTS / "contrasts.csv").open()) if line["difference"]]


def accuracies(row: str, level: str) -> dict[int, float]:
    record = json.loads((REPORTS / "evaluations" / f"{row}.json").read_text())
    metric = SUMMARY[row, level]["metric"]
    return {
        each["seed"]: 100 * each["metrics"][metric] for each in record["replicas"] if each["level"] == level
    }


def run_spread(row: str, level: str, paper_error: str) -> float:
    """Half the 95 % interval of a run like ours around its mean, for a printed value without an error."""
    values = list(accuracies(row, level).values())
    return 0.0 if paper_error else float(t.ppf(0.975, len(values) - 1)) * sqrt(variance(values))


def difference(line: dict[str, str]) -> tuple[float, float]:
    """Difference of the means, and half its 95 % interval: paired seeds of one row, Welch's for two rows."""
    sides = [accuracies(line[f"{side}_row"], line[f"{side}_level"]) for side in SIDES]
    if line["left_row"] == line["right_row"]:
        shared = sides[0].keys() & sides[1].keys()
        samples = [[sides[0][seed] - sides[1][seed] for seed in shared]]
        value = fmean(samples[0])
    else:
        samples = [list(side.values()) for side in sides]
        value = fmean(samples[0]) - fmean(samples[1])
    parts = [(variance(sample) / len(sample), len(sample)) for sample in samples]
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / (size - 1) for part, size in parts) if total else 1
    share = sum(fmean(side.values()) for side in sides) / 200
    tested = TESTED.get(SUMMARY[line["left_row"], line["left_level"]]["raw"], 7_600)
    test_error = 100 * sqrt(share * (1 - share) / tested)
    return value, hypot(float(t.ppf(0.975, freedom)) * sqrt(total), NORMAL * test_error)


@pytest.mark.parametrize("line", CONTRASTS, ids=lambda line: "-".join(list(line.values())[1:4]))
def test_a_contrast_has_the_status_that_its_records_give(line: dict[str, str]) -> None:
    ours, half = difference(line)
    printed = [line["left_paper_value"], line["right_paper_value"]]
    error = NORMAL * hypot(*(float(line[f"{side}_paper_error"] or 0) for side in SIDES))
    theirs, margin, whole = float(printed[0]) - float(printed[1]), float(line["margin"]), hypot(half, error)
    assert (ours, whole) == pytest.approx((float(line["difference"]), float(line["half_width_95"])), rel=1e-6)
    decimals = max(len(text.partition(".")[2]) for text in printed)
    sign = 0.0 if abs(theirs) <= max(error, 10**-decimals / 2) else copysign(1, theirs)
    spread = hypot(
        *(run_spread(*(line[f"{side}_{name}"] for name in ("row", "level", "paper_error"))) for side in SIDES)
    )
    has_sign, differs = sign * ours > half, abs(ours - theirs) - hypot(whole, spread) > margin
    if sign and sign * ours < -half and abs(theirs) > spread:
        status = "opposite"
    elif abs(ours - theirs) + whole <= margin and (has_sign or not sign):
        status = "agrees"
    elif differs:
        status = "differs" if not sign else "larger" if sign * (ours - theirs) > 0 else "smaller"
    else:
        status = "same sign" if has_sign else "undecided"
    assert line["status"] == status


def test_a_verdict_is_the_place_of_its_interval() -> None:
    judged = [
        line
        for line in SUMMARY.values()
        if line["decides"] == "True" and line["margin"] and line["paper_value"] and line["half_width_95"]
    ]
    assert len(judged) > 80
    for line in judged:
        if "seeds converge" in line["verdict"]:
            continue  # the share of seeds decides
        away, margin = float(line["ours"]) - float(line["paper_value"]), float(line["margin"]) + 1e-9
        half = float(line["difference_half_width_95"])
        place = "inconclusive"
        if abs(away) + half <= margin:
            place = "agrees"
        elif abs(away) - hypot(half, run_spread(line["row"], line["level"], line["paper_error"])) > margin:
            place = "above" if away > 0 else "below"
        assert line["verdict"].startswith((place, f"not judged ({place}): ")), (line["row"], line["level"])
