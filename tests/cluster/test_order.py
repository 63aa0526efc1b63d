import json
from pathlib import Path

from pipeline import params
from pipeline.cluster.costs import costs
from pipeline.cluster.makespan import gpu_hours, simulate
from pipeline.cluster.order import Order
from pipeline.cluster.tasks import Task
from pipeline.reporting.budgets import GPU_HOURS

ROOT = Path(__file__).parents[2]


def task(name: str, seconds: float | None, *after: str) -> Task:
    return Task(name, (("train", name),), (), frozenset(after), seconds)


def names(order: Order) -> list[str]:
    return [one.name for one in order.ready()]


CHAIN = [
    task("short", 1),
    task("long", 50),
    task("behind", 5),
    task("joined", 1, "behind"),
    task("last", 80, "joined"),
]


def test_the_longest_way_comes_first() -> None:
    assert names(Order(CHAIN)) == ["behind", "long", "short"]


def test_what_nobody_knows_counts_as_the_median() -> None:
    order = Order([task("a", 1), task("b", 10), task("c", 100), task("new", None)])
    assert names(order) == ["c", "b", "new", "a"]


def test_a_task_waits_for_its_inputs() -> None:
    order = Order(CHAIN)
    for name, then in (("behind", "joined"), ("joined", "last")):
        one = next(one for one in order.ready() if one.name == name)
        order.take(one)
        assert then not in names(order)
        order.done(one)
        assert then in names(order)
    # what is not among the tasks is there already
    assert names(Order([task("row", 1, "relevance@there")])) == ["row"]


def test_what_needs_a_failed_one_is_lost_and_nothing_else() -> None:
    order = Order(CHAIN)
    first = order.ready()[0]
    order.take(first)
    assert [one.name for one in order.failed(first)] == ["joined", "last"]
    assert names(order) == ["long", "short"]
    assert len(order) == 2


def test_a_task_whose_worker_died_comes_back_to_its_place() -> None:
    order = Order(CHAIN)
    first = order.ready()[0]
    order.take(first)
    order.put_back(first)
    assert names(order) == ["behind", "long", "short"]


def test_simulated_makespan() -> None:
    # behind, joined and last take 86 s on one slot, the others 51 s on the other
    assert simulate(CHAIN, 2).seconds == 86
    assert simulate(CHAIN, 1).seconds == 137
    assert simulate(CHAIN, 1).busy == 1
    assert simulate(CHAIN, 2).last == "last"


def test_the_hours_of_every_row_that_needs_a_gpu_are_counted_as_it_is_now() -> None:
    """Else `python -m pipeline.cluster.makespan` writes them anew."""
    own = params.load(ROOT / "params.yaml")
    found = {key: costs(row, own) for key, row in own.rows.items() if row.needs == "gpu"}
    assert gpu_hours(own, found) == json.loads((ROOT / GPU_HOURS).read_text())
