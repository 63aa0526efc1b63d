"""How training is shown: a live line on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

if TYPE_CHECKING:
    from pipeline.training import Progress as State
    from pipeline.training import Show

PLAIN_EVERY = 30.0  # seconds between lines inside an epoch, where nobody sees a live one


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def describe(state: "State") -> str:
    """Where training stands, in one line."""
    spent = "not private"
    if state.epsilon is not None:
        low, high = (f"{value:.2f}" for value in state.epsilon)
        spent = f"epsilon spent {low}" if low == high else f"epsilon spent {low} to {high}"
    judged = (
        "" if state.validation_accuracy is None else f"validation {100 * state.validation_accuracy:.2f} %  "
    )
    return (
        f"group {state.group + 1}/{state.groups} ({state.replicas} replicas)  "
        f"step {state.step}/{state.steps}  epoch {state.epoch:.1f}  {spent}  "
        f"loss {state.train_loss:.3f}  {judged}{_minutes(state.seconds_left)} left"
    )


@contextmanager
def showing(title: str) -> Iterator["Show"]:
    """A function that shows training's progress while the block runs."""
    console = Console(stderr=True)
    if not console.is_terminal:
        printed = time.monotonic()

        def plain(state: "State") -> None:
            nonlocal printed
            if state.ends_epoch or time.monotonic() - printed >= PLAIN_EVERY:
                print(f"{title}: {describe(state)}", flush=True)
                printed = time.monotonic()

        yield plain
        return
    columns = (TextColumn("[bold]{task.fields[title]}"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("starting", title=title, total=None)

        def live(state: "State") -> None:
            bar.update(task, description=describe(state), completed=state.step, total=state.steps)

        yield live
