"""Which task is next: of those whose inputs are there, the one with the longest way behind it."""

from bisect import insort
from collections.abc import Iterable
from statistics import median

from pipeline.cluster.tasks import Task


class Order:
    """Tasks that are not done yet.

    First comes what takes longest together with what waits for it: a long one that starts last is what
    everybody waits for in the end. What nobody knows the time of counts as the median of the others.
    """

    def __init__(self, tasks: Iterable[Task]):
        """A task waits for what it comes ``after``, where that is among ``tasks``; the rest is there."""
        every = {task.name: task for task in tasks}
        self._waits = {name: set(task.after & every.keys()) for name, task in every.items()}
        self._then: dict[str, list[Task]] = {name: [] for name in every}
        for name, waits in self._waits.items():
            for before in waits:
                self._then[before].append(every[name])
        known = [task.seconds for task in every.values() if task.seconds is not None]
        self._usual = median(known) if known else 1.0
        self._way: dict[str, float] = {}
        self._ready: list[tuple[float, str, Task]] = []
        for task in every.values():
            self._measure(task)
        for task in every.values():
            if not self._waits[task.name]:
                self.put_back(task)

    def __len__(self) -> int:
        """How many are not done, those that were taken included."""
        return len(self._waits)

    def ready(self) -> list[Task]:
        """Those that can be taken now, in the order to take them."""
        return [task for *_, task in self._ready]

    def take(self, task: Task) -> None:
        """It is being worked on."""
        self._ready.remove((-self._way[task.name], task.name, task))

    def put_back(self, task: Task) -> None:
        """It has to be worked on, for the first time or again."""
        insort(self._ready, (-self._way[task.name], task.name, task), key=lambda one: one[:2])

    def done(self, task: Task) -> None:
        """Its results are there."""
        del self._waits[task.name]
        for one in self._then[task.name]:
            self._waits[one.name].discard(task.name)
            if not self._waits[one.name]:
                self.put_back(one)

    def failed(self, task: Task) -> list[Task]:
        """Its results won't be there; returns those that nobody can work on without them."""
        del self._waits[task.name]
        lost = [one for one in self._then[task.name] if one.name in self._waits]
        return lost + [more for one in lost if one.name in self._waits for more in self.failed(one)]

    def _measure(self, task: Task) -> float:
        if task.name not in self._way:
            own = self._usual if task.seconds is None else task.seconds
            self._way[task.name] = own + max(map(self._measure, self._then[task.name]), default=0.0)
        return self._way[task.name]
