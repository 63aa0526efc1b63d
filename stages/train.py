"""`dprepro train ROW`: missing training runs of a row."""

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from dprepro.errors import UserError, counted

if TYPE_CHECKING:
    from dprepro.pipeline.data.prepared import Prepared
    from dprepro.pipeline.methods.base import Execution
    from dprepro.pipeline.params import Settings

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N. auto uses a GPU if there is one.")]
Physical = Annotated[
    int, typer.Option(min=0, help="Examples per forward pass; 0: 256 on a CPU, 4096 on a GPU.")
]
Workers = Annotated[
    int,
    typer.Option(
        min=0, help="Training runs at a time, each a process; 0: one per thread of torch, and one on a GPU."
    ),
]
CheckpointEvery = Annotated[
    float, typer.Option(min=0, help="Seconds between checkpoints; a kill loses at most this much work.")
]


def execution(device: str, physical: int = 0) -> "Execution":
    """`Execution` for the options ``--device`` and ``--physical``.

    Raises:
        UserError: the device can't be used.
    """
    import torch

    from dprepro.pipeline.methods.base import Execution, keep_freed

    keep_freed()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        if chosen.type not in ("cpu", "cuda"):
            raise RuntimeError(f"a {chosen.type} device")
        torch.zeros(1, device=chosen)
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).splitlines()[0]
        raise UserError(
            f"--device {device}: not usable here ({reason}); allowed: auto, cpu, cuda, cuda:N"
        ) from problem
    # for any setting of the machine: with 10 bits, a clipped vector could be longer than its bound
    torch.set_float32_matmul_precision("highest")
    # On a CPU, small passes stay in the cache, and batched convolutions are slow. A GPU needs many examples
    # at a time, but each per-example gradient of a VGG takes 19 MB.
    on_cpu = chosen.type == "cpu"
    return Execution(chosen, physical or (256 if on_cpu else 4096))


def side_by_side(workers: int, how: "Execution") -> int:
    """Number of processes: ``workers``; if it is 0, one per thread of torch, and one on a GPU."""
    import torch

    return workers or (torch.get_num_threads() if how.device.type == "cpu" else 1)


def ready(
    key: str, settings: "Settings", device: str, physical: int = 0, anywhere: bool = False
) -> tuple["Prepared", "Execution"]:
    """Prepared data of a row, and its `Execution`; ``anywhere``: also on a CPU if the row needs a GPU.

    Raises:
        UserError: the device can't be used, the row needs a GPU and the device is a CPU, or the row's data
            are not prepared as declared.
    """
    from dprepro.pipeline.data.declaration import check_declared
    from dprepro.pipeline.data.prepared import load

    row, how = settings.row(key), execution(device, physical)
    if row.needs == "gpu" and how.device.type == "cpu" and not anywhere:
        raise UserError(f"{key}: waits for a GPU (`needs: gpu` in params.yaml), and there is none here")
    check_declared(row.data, settings)
    return load(row.data), how


def train(
    row: Annotated[str, typer.Argument(help="A key of `rows` in params.yaml.")],
    device: Device = "auto",
    physical: Physical = 0,
    workers: Workers = 0,
    checkpoint_every: CheckpointEvery = 60.0,
) -> None:
    """Train a row's levels and seeds whose weights are missing. A killed command keeps finished runs."""
    from dprepro.pipeline.params import load
    from dprepro.pipeline.results import records
    from dprepro.pipeline.results.weights import duration
    from dprepro.pipeline.training.rows import describe_device, missing
    from dprepro.pipeline.training.rows import train as run_trainings
    from dprepro.stages.progress import showing

    loaded = load()
    data, how = ready(row, loaded, device, physical)
    run = records.read_run(row)
    wanted = missing(declared := loaded.row(row), run, data)
    if wanted:
        # set by DVC for its stages
        if "DVC_STAGE" in os.environ and (left := _left(loaded)):
            print(left)
        time = duration(run, [each.level for each in wanted])
        count = f"{len(wanted)} of {len(declared.trainings)} to train"
        print(f"{row}: {count}, {time}, on {describe_device(how.device)}", flush=True)
    with showing(row) as show:
        trained = run_trainings(
            row, loaded, data, how, show, checkpoint_every, workers=side_by_side(workers, how)
        )
    stand = len(declared.trainings) - trained
    print(f"{row}: {trained} trained, {stand} stand, {records.run_path(row)}")


def _left(settings: "Settings") -> str | None:
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
    time = f"about {timedelta(seconds=round(sum(known)))} by the records of {counted(len(known), 'row')}"
    unknown = f", not known for {new}" if (new := len(times) - len(known)) else ""
    what = f"weights of {counted(count, 'training')} of {counted(len(times), 'row')}"
    return (
        f"{what} are not here. `dvc repro` of everything trains them: {time}{unknown}; "
        "`dvc repro evaluate@ROW` those of one row, `dvc repro --allow-missing` none"
    )
