"""Whether a row's numbers are those that the settings and the code here would make; if not, in words."""

from collections.abc import Iterator
from pathlib import Path

from pipeline.identity.code import train_code
from pipeline.identity.standing import Standing
from pipeline.params import Row
from pipeline.reporting.results import Mark
from pipeline.results import records

# shown rather than hidden: the numbers are real, but of other settings than those declared now
SETTINGS_CHANGED = Mark("settings have changed since this run", incomparable=True, inconclusive=True)


def made_otherwise(key: str, row: Row, root: Path) -> Iterator[Mark]:
    """A mark for everything that made the row's numbers and isn't here any more."""
    run, evaluation = records.read_run(key, root), records.read_evaluation(key, root)
    if run is None or evaluation is None:
        return
    stands = Standing(key, row, None)
    if any(stands.misdeclared(run, one) for one in run.replicas):
        yield SETTINGS_CHANGED
    now = train_code(row.method, row.model.name).digest
    others = {one.origin for one in run.replicas if stands.other_code(run, one)}
    details = []
    for made in (run.origins[place] for place in sorted(others)):
        why = stands.findings.why_different("train", key, made.code, now)
        at = made.revision[:8] if made.revision else "no commit"
        details.append(f"{at}: {why or 'not compared with the code here'}")
    if details:
        yield Mark("trained by other code", detail="; ".join(details))
    if any(stands.measured_otherwise(one) for one in evaluation.replicas):
        yield Mark("measured by other code")
