"""Pictures of a row: validation accuracy by epoch, and proven trade-off curves.

They are plain SVG: matplotlib takes a third of a second for each, and there are hundreds.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

import pandas as pd

from dprepro.pipeline.ledgers.sentences import number
from dprepro.pipeline.reporting.accuracy_privacy import COLOURS
from dprepro.pipeline.reporting.privacy import worst
from dprepro.pipeline.reporting.wording import level_words
from dprepro.pipeline.results import records
from dprepro.pipeline.results.histories import ACCURACY
from dprepro.pipeline.results.schema import Ledger, Record

POINTS = 200  # drawn of a curve, enough for a screen
WIDTH, HEIGHT, LEFT, BELOW, LEGEND = 480, 220, 40, 34, 110
Curve = Sequence[tuple[float, float]]


def draw(record: Record, root: Path) -> list[tuple[str, str]]:
    """(caption, SVG) of a row's pictures; those without data are left out."""
    return [*_training(record, root), *_tradeoff(record)]


def _training(record: Record, root: Path) -> Iterator[tuple[str, str]]:
    lines = pd.DataFrame(records.read_history(record.row, root), columns=records.HISTORY_COLUMNS)
    means = lines[lines["metric"] == ACCURACY].groupby(["level", "epoch"], sort=False)["value"].mean() * 100
    curves = {
        str(level): [(float(epoch), float(value)) for (_, epoch), value in curve.items()]
        for level, curve in means.groupby("level", sort=False)
    }
    if any(len(curve) > 1 for curve in curves.values()):
        yield "Validation accuracy (%) by epoch, mean over seeds", _picture(curves, "epoch", (0.0, 100.0))


def _tradeoff(record: Record) -> Iterator[tuple[str, str]]:
    by_level: dict[str, list[Ledger]] = {training.level: [] for training in record.trainings}
    for training in record.trainings:
        by_level[training.level].append(training.ledger)
    proven = {level: worst(ledgers) for level, ledgers in by_level.items()}
    curves = {
        level: ledger.tradeoff for level, ledger in proven.items() if ledger.tradeoff and not ledger.reasons
    }
    if curves:
        caption = "Least type II error of any attacker, by type I error: proven lower bounds"
        yield caption, _picture(curves, "type I error", (0.0, 1.0))


def _picture(curves: Mapping[str, Curve], axis: str, height: tuple[float, float]) -> str:
    """SVG of curves by level, with a legend; ``height`` is the range of the vertical axis."""
    high = max(x for curve in curves.values() for x, _ in curve) or 1.0
    parts = []
    last = float(int(high)) or high
    for tick in range(5):
        y = HEIGHT * tick / 4
        text = number(height[1] - (height[1] - height[0]) * tick / 4)
        parts.append(f'<path class="rule" d="M{LEFT} {y:.0f}h{WIDTH}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y + 4:.0f}" text-anchor="end">{text}</text>')
        x = LEFT + WIDTH * last / high * tick / 4
        text = number(last * tick / 4)
        parts.append(f'<text x="{x:.0f}" y="{HEIGHT + 15}" text-anchor="middle">{text}</text>')
    middle = LEFT + WIDTH / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT + 30}" text-anchor="middle">{escape(axis)}</text>')
    for place, (level, curve) in enumerate(curves.items()):
        colour = COLOURS[place % len(COLOURS)]
        drawn = [*curve[: -1 : -(-len(curve) // POINTS)], curve[-1]]
        points = " ".join(
            f"{LEFT + WIDTH * x / high:.1f},{HEIGHT * (height[1] - y) / (height[1] - height[0]):.1f}"
            for x, y in drawn
        )
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{points}"/>')
        y = 12 + 15 * place
        words = escape(level_words(level))
        parts.append(f'<text x="{LEFT + WIDTH + 10}" y="{y}" style="fill:{colour}">{words}</text>')
    size = f"0 -6 {LEFT + WIDTH + LEGEND} {max(HEIGHT + BELOW, 15 * len(curves)) + 10}"
    return f'<svg class="plot" viewBox="{size}" width="{LEFT + WIDTH + LEGEND}">{"".join(parts)}</svg>'
