"""Which task is next: of those whose inputs are there, the one with the longest way behind it."""

from collections.abc import Iterable
from statistics import median

from pipeline.cluster.tasks import Task


class Order:
    """Tasks that are not done yet.

    First comes what takes longest together with what waits for it: a long one that starts last is what
    everybody waits for in the end. What nobody knows the time of counts as the median of the others.
    """

    def __init__(self, tasks: Iterable[Task]):
        """Of ``after`` only what is among ``tasks`` is waited for; the rest is there already."""
        self._open = {task.name: task for task in tasks}
        self._waits = {name: task.after & self._open.keys() for name, task in self._open.items()}
        known = [task.seconds for task in self._open.values() if task.seconds is not None]
        self._usual = median(known) if known else 1.0
        self._behind: dict[str, float] = {}
        for name in self._open:
            self._way(name)
        self._longest_first = sorted(self._open, key=lambda name: -self._behind[name])

    def __len__(self) -> int:
        """How many are not done, those that were taken included."""
        return len(self._waits)

    def ready(self) -> list[Task]:
        """Those that can be taken now, in the order to take them."""
        names = (name for name in self._longest_first if name in self._open and not self._waits[name])
        return [self._open[name] for name in names]

    def take(self, task: Task) -> None:
        """It is being worked on."""
        del self._open[task.name]

    def put_back(self, task: Task) -> None:
        """It has to be worked on again."""
        self._open[task.name] = task

    def done(self, task: Task) -> None:
        """Its results are there."""
        del self._waits[task.name]
        self._waits = {name: waits - {task.name} for name, waits in self._waits.items()}

    def failed(self, task: Task) -> list[Task]:
        """Its results won't be there; returns those that nobody can work on without them."""
        del self._waits[task.name]
        lost = [self._open[name] for name, waits in self._waits.items() if task.name in waits]
        for one in lost:
            del self._open[one.name]
        return lost + [more for one in lost for more in self.failed(one)]

    def _way(self, name: str) -> float:
        if name not in self._behind:
            own = self._open[name].seconds
            waiting = [other for other, waits in self._waits.items() if name in waits]
            self._behind[name] = (self._usual if own is None else own) + max(
                map(self._way, waiting), default=0.0
            )
        return self._behind[name]
