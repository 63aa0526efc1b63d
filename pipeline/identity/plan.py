"""What `dvc repro` would train, and how long that took before: to be read before hours are spent."""

from dataclasses import dataclass

from pipeline.params import Settings
from pipeline.results import records
from pipeline.transport import dvclock


@dataclass(frozen=True)
class Planned:
    """A row that would be trained."""

    row: str
    replicas: int
    seconds: float | None  # that its last training took; None: never trained
    device: str | None  # it was trained on


def plan(settings: Settings) -> list[Planned]:
    """The rows that DVC finds changed, or whose data it does.

    What changed upstream may turn out to give the same data, so some may be skipped in the end.
    """
    changed = dvclock.changed()
    planned = []
    for key, row in settings.rows.items():
        if _way(settings, key) & changed:
            record = records.read(key)
            # replicas trained together share their times
            spans = {(replica.started, replica.ended) for replica in record.replicas} if record else set()
            planned.append(
                Planned(
                    row=key,
                    replicas=len(row.levels) * row.seeds,
                    seconds=sum(ended - started for started, ended in spans) if record else None,
                    device=record.provenance.device if record else None,
                )
            )
    return planned


def _way(settings: Settings, key: str) -> set[str]:
    """The DVC stages that lead to a trained row."""
    name = settings.rows[key].data
    data = settings.split(name)
    way = {
        f"fetch@{data.raw}",
        f"fetch@{data.public.raw}",
        f"{settings.stage_of(name)}@{name}",
        f"train@{key}",
    }
    if joined := settings.derived.get(name):
        return way | {f"prepare@{joined.data}"} | _way(settings, joined.row)
    return way
