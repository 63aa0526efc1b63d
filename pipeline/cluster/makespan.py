"""`python -m pipeline.cluster.makespan`: what the whole grid takes on so many GPUs, by this scheduler.

Written to docs/grid.md, and the hours of rows that need a GPU to where the report reads them. Costs are
counted (`costs`), what a GPU sustains is assumed and printed, the task graph is the real one, the order
the coordinator's own (`order`).
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline import params
from pipeline.cluster.costs import Cost, Machine, costs
from pipeline.cluster.order import Order
from pipeline.cluster.tasks import Task
from pipeline.files import write_json, write_text
from pipeline.params import Settings
from pipeline.reporting.budgets import GPU_HOURS

# Assumed of an H200: 15, 30 and 60 % of its 67 TFLOP/s in float32 without tensor cores, which training here
# never uses (`set_float32_matmul_precision("highest")`), and a step that is bound by starting its kernels
RATES, STEP = (10e12, 20e12, 40e12), 0.01
EXPECTED = Machine(RATES[1], STEP)
PAGE = Path("docs/grid.md")
SLOTS = (1, 8, 64)
JOINING = 60.0  # seconds for a start or a relevance
AFTERWARDS = 20.0  # for evaluation and ledger

Counted = dict[str, list[Cost]]  # by row


@dataclass(frozen=True)
class Simulated:
    """A grid as it would run."""

    seconds: float
    busy: float  # share of the slots' time that is worked in
    last: str  # the task that ends last


def counted(settings: Settings) -> Counted:
    """What every row costs."""
    return {key: costs(row, settings) for key, row in settings.rows.items()}


def whole(settings: Settings, found: Counted, machine: Machine, divided: bool = False) -> Iterator[Task]:
    """The tasks of all rows as if nothing was there; ``divided``: every replica is a task of its own."""
    for name, derived in settings.derived.items():
        behind = (derived.row, *(_part(derived.row, part) for part in range(_replicas(found[derived.row]))))
        yield Task(name, (), (), frozenset(behind), JOINING)
    for key, row in settings.rows.items():
        after = frozenset({row.data} if row.data in settings.derived else ())
        if divided:
            alone = [one.alone for one in found[key] for _ in range(one.replicas)]
            for part, one in enumerate(alone):
                yield Task(_part(key, part), (), (), after, machine.seconds(one) + AFTERWARDS)
        else:
            yield Task(key, (), (), after, sum(map(machine.seconds, found[key])) + AFTERWARDS)


def simulate(tasks: Iterable[Task], slots: int) -> Simulated:
    """Run tasks that take just their seconds on slots that are all alike."""
    order, now, last, worked = Order(tasks), 0.0, "", 0.0
    running: list[tuple[float, str, Task]] = []
    while len(order):
        for task in order.ready()[: slots - len(running)]:
            order.take(task)
            seconds = task.seconds or 0.0
            worked += seconds
            heapq.heappush(running, (now + seconds, task.name, task))
        now, last, ended = heapq.heappop(running)
        order.done(ended)
    return Simulated(now, worked / (now * slots), last)


def gpu_hours(settings: Settings, found: Counted) -> dict[str, float]:
    """Hours of one GPU, two digits of them, for each row that needs one."""
    return {
        key: float(f"{sum(map(EXPECTED.seconds, costs_of)) / 3600:.2g}")
        for key, costs_of in found.items()
        if settings.rows[key].needs == "gpu"
    }


def table(settings: Settings, found: Counted) -> Iterator[str]:
    """The page, in Markdown."""
    yield from (
        "# What the whole grid takes",
        "",
        "Counted and simulated, not measured: `python -m pipeline.cluster.makespan` writes this page.",
        "Operations are those of plain forward and backward passes. A GPU is taken to sustain so many of",
        f"them a second, and to need {1000 * STEP:g} ms a step at least. Every row of params.yaml runs from",
        "the start, starts and relevances before what reads them, the longest way first. *Divided*: as if",
        "each replica was a task of its own, and not each row.",
        "",
        "| rows | replicas | operations |",
        "| --- | --- | --- |",
    )
    for kind in ("cpu", "gpu"):
        those = [found[key] for key, row in settings.rows.items() if row.needs == kind]
        operations = sum(one.operations for row in those for one in row)
        yield f"| {len(those)} that need a {kind.upper()} | {sum(map(_replicas, those))} | {operations:.2g} |"
    yield ""
    yield "| sustained | GPUs | GPU hours | makespan, hours | busy | ends last | divided: hours | busy |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for rate in RATES:
        machine = Machine(rate, STEP)
        rows, parts = (
            list(whole(settings, found, machine)),
            list(whole(settings, found, machine, divided=True)),
        )
        hours = sum(task.seconds or 0.0 for task in rows) / 3600
        for slots in SLOTS:
            run, finer = simulate(rows, slots), simulate(parts, slots)
            own = f"{run.seconds / 3600:.1f} | {run.busy:.0%} | {run.last}"
            yield (
                f"| {rate / 1e12:g} TFLOP/s | {slots} | {hours:.0f} | {own} | "
                f"{finer.seconds / 3600:.1f} | {finer.busy:.0%} |"
            )


def _part(row: str, number: int) -> str:
    return f"{row} {number}"


def _replicas(found: Sequence[Cost]) -> int:
    return sum(one.replicas for one in found)


def main() -> None:
    """Write the page and the hours."""
    settings = params.load()
    found = counted(settings)
    write_text(PAGE, "\n".join(table(settings, found)) + "\n")
    write_json(GPU_HOURS, gpu_hours(settings, found))


if __name__ == "__main__":
    main()
