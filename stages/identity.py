"""`dprepro identity`: a digest of settings and versions per stage."""

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dprepro.pipeline.params import Settings


def identity() -> None:
    """Write a digest of settings and versions for each stage. DVC runs the stages whose digest changed.

    DVC runs this stage first, so it also prints what a `dvc repro` of all rows would train.
    """
    from dprepro.pipeline import params
    from dprepro.pipeline.identity import entries

    settings = params.load()
    print(f"{entries.write(settings)}: written")
    if told := _to_train(settings):
        print(told)


def _to_train(settings: "Settings") -> str | None:
    """Line on the trainings without weights here; None: all have them."""
    from dprepro.pipeline.results import records
    from dprepro.pipeline.results.weights import seconds, weights_path

    count, times = 0, []
    for key, row in settings.rows.items():
        keys = ((row.level(resolved), seed) for resolved, seed in row.trainings)
        if levels := [level for level, seed in keys if not weights_path(key, level, seed).exists()]:
            count += len(levels)
            times.append(seconds(records.read_run(key), levels))
    if not count:
        return None
    known = [each for each in times if each is not None]
    time = f"about {timedelta(seconds=round(sum(known)))} by the records of {len(known)} rows"
    unknown = f", not known for {new}" if (new := len(times) - len(known)) else ""
    return (
        f"weights of {count} trainings of {len(times)} rows are not here. `dvc repro` of everything trains "
        f"them: {time}{unknown}; `dvc repro evaluate@ROW` those of one row, `dvc repro --allow-missing` none"
    )
