"""`dprepro train ROW`."""

from typing import Annotated

import typer

from pipeline.errors import UserError

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N. auto takes a GPU when there is one.")]
Physical = Annotated[
    int, typer.Option(min=1, help="Examples of one forward pass, all replicas together: bounds memory, not results.")
]
AtOnce = Annotated[
    int,
    typer.Option(min=0, help="Replicas of one pass; 0: all on a GPU, one at a time on a CPU. Never changes results."),
]
Reference = Annotated[
    bool, typer.Option("--reference", help="Take per-example gradients the slow, obvious way, to compare with.")
]
CheckpointEvery = Annotated[
    float, typer.Option(min=0, help="Seconds between checkpoints: what a kill loses at most.")
]


def execution(device: str, physical: int, at_once: int, reference: bool):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """The `Execution` that the speed options describe.

    Raises:
        UserError: the device is not there.
    """
    import torch

    from pipeline.methods.base import Execution

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.zeros(1, device=chosen)
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).splitlines()[0]
        raise UserError(f"--device {device}: not usable here ({reason}); allowed: auto, cpu, cuda, cuda:N") from problem
    default = 1 if chosen.type == "cpu" else None
    return Execution(chosen, at_once or default, physical, reference)


def train(
    row: Annotated[str, typer.Argument(help="A key of `rows` in params.yaml.")],
    device: Device = "auto",
    physical: Physical = 4096,
    replicas_at_once: AtOnce = 0,
    reference: Reference = False,
    checkpoint_every: CheckpointEvery = 60.0,
) -> None:
    """Train every replica (levels x seeds) of a row; a run that was killed goes on from its checkpoint."""
    from pipeline import settings, training
    from pipeline.data import prepared
    from stages.progress import showing

    loaded = settings.load()
    own = loaded.row(row)
    how = execution(device, physical, replicas_at_once, reference)
    data = prepared.load(own.data)
    print(f"{row}: {len(own.resolved) * own.seeds} replicas on {training.describe_device(how.device)}", flush=True)
    with showing(row) as show:
        folder = training.train(row, loaded, data, how, show, checkpoint_every)
    print(f"{row}: trained, {folder}")
