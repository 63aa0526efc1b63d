"""Whether a row's numbers are those that the settings and the versions here would make; if not, in words."""

from collections.abc import Iterator
from pathlib import Path

from pipeline.identity import versions
from pipeline.identity.standing import Standing, measured_otherwise
from pipeline.params import Row
from pipeline.reporting.results import Mark
from pipeline.results import records, schema

# shown rather than hidden: the numbers are real, but of other settings than those declared now
SETTINGS_CHANGED = Mark("settings have changed since this run", incomparable=True, inconclusive=True)


def made_otherwise(key: str, row: Row, root: Path) -> Iterator[Mark]:
    """A mark for everything that made the row's numbers and isn't here any more."""
    run, evaluation = records.read_run(key, root), records.read_evaluation(key, root)
    if run is None or evaluation is None:
        return
    stands = Standing(row, None)
    if any(stands.misdeclared(run, one) for one in run.replicas):
        yield SETTINGS_CHANGED
    others = {one.origin for one in run.replicas if stands.other_version(run, one)}
    if others:
        details = [_told(run.origins[place], row) for place in sorted(others)]
        yield Mark("trained by other code", detail="; ".join(details))
    if any(measured_otherwise(one) for one in evaluation.replicas):
        yield Mark("measured by other code")


def _told(made: schema.Provenance, row: Row) -> str:
    """A commit, and the versions there that are others than here."""
    here = versions.training(row.method, row.model.name)
    others = [
        f"{part} version {made.made_by.get(part, 0)}, now {version}"
        for part, version in here.items()
        if made.made_by.get(part) != version
    ]
    return f"{made.revision[:8] if made.revision else 'no commit'}: {', '.join(others)}"
