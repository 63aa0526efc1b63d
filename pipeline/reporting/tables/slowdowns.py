"""Slow-downs as lines of a table."""

from pipeline.reporting import wording
from pipeline.reporting.judging.slowdown import Slowdown

HEAD = ("row", "levels", "validation accuracy to reach", "epochs", "slow-down")


def cells(one: Slowdown) -> list[str]:
    """A slow-down under `HEAD`, without its row."""
    levels = [f"{wording.level_words(one.start)} → {wording.level_words(one.end)}"]
    if one.threshold is None or one.epochs is None or one.ratio is None:
        return [*levels, "", "", f"unknown: {one.problem}"]
    before, after = one.epochs
    # a mark of the whole row stands beside its name
    unresolved = f" [{one.unresolved}]" if one.unresolved else ""
    return [
        *levels,
        f"{100 * one.threshold:.2f} %",
        f"{before:.1f} → {after:.1f}",
        wording.with_interval(one.ratio, 2) + unresolved,
    ]
