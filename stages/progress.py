"""Progress of work: a live line on a terminal, occasional lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

from rich.console import Console

from dprepro.accountants.records import SampledGaussian, rounded_up

if TYPE_CHECKING:
    from dprepro.pipeline.training.loop import Progress as State
    from dprepro.pipeline.training.loop import Show

PLAIN_EVERY = 30.0  # seconds between lines inside an epoch, without a terminal
COUNTED_EVERY = 5.0  # seconds between lines that count finished work


def describe(state: "State") -> str:
    """Progress of a training in one line."""
    judged = ""
    if state.validation_accuracy is not None:
        guess = " (no better than guessing)" if state.is_guess else ""
        judged = f"validation {100 * state.validation_accuracy:.2f} %{guess}  "
    return (
        f"training {state.number + 1}/{state.trainings} ({state.name})  "
        f"step {state.step}/{state.steps}  epoch {state.epoch:.1f}  {_spent(state)}  "
        f"loss {state.train_loss:.3f}  {judged}{int(state.seconds_left) // 60}:"
        f"{int(state.seconds_left) % 60:02d} left"
    )


def _spent(state: "State") -> str:
    """Epsilon that the training has spent, rounded up, in words."""
    spent = None if state.reproducible else state.guarantee.epsilon_after(state.step)
    if spent is None:
        return "not private"
    spending, delta = state.guarantee.spending, state.guarantee.delta
    of_person = isinstance(spending, SampledGaussian) and spending.group is not None
    unit = " for a person" if of_person else ""
    if state.step < state.steps or not isinstance(spending, SampledGaussian) or delta is None:
        return f"epsilon by a quick bound at most {rounded_up(spent, 3)}{unit}"
    return f"epsilon at most {rounded_up(_whole(spending, state.steps, delta), 3)}{unit}"


@cache
def _whole(spending: SampledGaussian, steps: int, delta: float) -> float:
    """Upper bound on epsilon of a whole training, as in its ledger; seeds share it."""
    from dprepro.accountants.bounds import smallest_bound

    return smallest_bound(spending, steps, delta)


@contextmanager
def _line_shower(every: float) -> Iterator[Callable[[str, bool], None]]:
    """Yield a function that shows a line on a terminal, in place of the line before.

    Without a terminal it prints the line if its second argument is True, or ``every`` seconds after the last.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("") as live:
            yield lambda line, due: live.update(line)
        return
    printed = time.monotonic()

    def tell(line: str, due: bool) -> None:
        nonlocal printed
        if due or time.monotonic() - printed >= every:
            print(line, flush=True)
            printed = time.monotonic()

    yield tell


@contextmanager
def showing(title: str) -> Iterator["Show"]:
    """Yield a function that shows a training's progress."""
    with _line_shower(PLAIN_EVERY) as tell:
        yield lambda state: tell(f"{title}: {describe(state)}", state.logged)


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function that counts and shows finished work; call it after each of ``total`` pieces."""
    number = count(1)
    with _line_shower(COUNTED_EVERY) as tell:
        yield lambda name: tell(f"{title}: {next(number)}/{total}  {name}", False)
