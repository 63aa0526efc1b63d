"""How work is shown while it goes on: a live line on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pipeline.rounding import rounded_up

if TYPE_CHECKING:
    from pipeline.training.loop import Progress as State
    from pipeline.training.loop import Show

PLAIN_EVERY = 30.0  # seconds between lines inside an epoch, where nobody sees a live one
COUNTED_EVERY = 5.0  # and between lines that count what is done


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def describe(state: "State") -> str:
    """Where training stands, in one plain line."""
    judged = ""
    if state.validation_accuracy is not None:
        judged = f"validation {100 * state.validation_accuracy:.2f} %  "
    spent = _spent(state, "epsilon by a quick bound at most ", " to ", 3) or "not private"
    return (
        f"group {state.group + 1}/{state.groups} ({len(state.guarantees)} replicas)  "
        f"step {state.step}/{state.steps}  epoch {state.epoch:.1f}  {spent}  "
        f"loss {state.train_loss:.3f}  {judged}{_minutes(state.seconds_left)} left"
    )


def glance(state: "State") -> str:
    """The same in few letters: a terminal of 80 columns has a bar and the row's name beside it."""
    judged = f" acc {100 * state.validation_accuracy:.1f}%" if state.validation_accuracy is not None else ""
    spent = _spent(state, " ε≤", "-", 2)
    place = f"{state.group + 1}/{state.groups} " if state.groups > 1 else ""
    return f"{place}epoch {state.epoch:.1f}{spent}{judged} {_minutes(state.seconds_left)} left"


def _spent(state: "State", before: str, between: str, digits: int) -> str:
    """Least and most that the replicas have spent, rounded up; empty where nothing bounds it."""
    from pipeline.ledgers.spending import spent_so_far

    spent = [spent_so_far(each, state.reproducible, state.step) for each in state.guarantees]
    known = [each for each in spent if each is not None]
    if len(known) < len(spent):
        return ""
    low, high = (str(rounded_up(value, digits)) for value in (min(known), max(known)))
    return before + (low if low == high else f"{low}{between}{high}")


class _Lines:
    """Lines that are printed now and then, where nobody sees a live one."""

    def __init__(self, every: float):
        """``every``: seconds between two lines at least."""
        self.every, self.printed = every, time.monotonic()

    def tell(self, line: str, due: bool = False) -> None:
        """Print ``line``, where it is ``due`` or it is time for one."""
        if due or time.monotonic() - self.printed >= self.every:
            print(line, flush=True)
            self.printed = time.monotonic()


@contextmanager
def showing(title: str) -> Iterator["Show"]:
    """A function that shows training's progress while the block runs."""
    console = Console(stderr=True)
    if not console.is_terminal:
        lines = _Lines(PLAIN_EVERY)
        yield lambda state: lines.tell(f"{title}: {describe(state)}", state.logged)
        return
    columns = (TextColumn("[bold]{task.fields[title]}"), BarColumn(6), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as bar:
        # a line for each group of replicas; several are under way where processes share them
        tasks = {0: bar.add_task("starting", title=title, total=None)}

        def live(state: "State") -> None:
            if state.group not in tasks:
                tasks[state.group] = bar.add_task("", title=title, total=None)
            line = tasks[state.group]
            done = state.step == state.steps and state.groups > 1
            bar.update(
                line, description=glance(state), completed=state.step, total=state.steps, visible=not done
            )

        yield live


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """A function that is told of each of ``total`` pieces of work when it is done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        lines, number = _Lines(COUNTED_EVERY), count(1)
        yield lambda name: lines.tell(f"{title}: {next(number)}/{total}  {name}")
        return
    columns = (
        TextColumn("[bold]{task.fields[title]}"),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", title=title, total=total)
        yield lambda name: bar.update(task, advance=1, description=name)
