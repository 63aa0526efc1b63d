"""What runs on a slot of a machine that shares no folder with the coordinator's: a row, in a clone there.

Imported on every machine that works, so it needs little. The commands are the clone's own; here is only what
brings a row's inputs there and its results back.
"""

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from platform import node

from pipeline.cluster import carrying, clones, slot
from pipeline.cluster.clones import Data, Source
from pipeline.cluster.logs import end
from pipeline.cluster.slot import Ended, Job
from pipeline.cluster.transit import Transit
from pipeline.errors import UserError, printable

LOG_BYTES = 1 << 16  # that come back with the result
IDENTITY = Path("reports/identity.json")
_identified: set[Path] = set()  # clones whose code and settings this process has seen digests of


@dataclass(frozen=True)
class Errand:
    """A row's training as it travels to another machine."""

    row: str
    commands: tuple[tuple[str, ...], ...]  # arguments of dprepro
    source: Source
    data: Data
    records: tuple[tuple[str, str | None], ...]  # path and text of what the coordinator has of the row
    digests: tuple[tuple[str, str], ...]  # stage and digest of the code and settings behind it
    checkpoints: str  # folder of the row's
    lock: str  # file that whoever trains this row holds
    transit: str  # the coordinator's folder in the remote
    every: float  # seconds between looks for what is to be carried


@dataclass(frozen=True)
class Back(Ended):
    """How an errand ended, and the end of its log."""

    log: str = ""


def work(errand: Errand) -> Back:
    """Train a row in this machine's clone, from its newest checkpoint, and leave its pack in the remote."""
    begun = time.monotonic()
    try:
        top = clones.clone(errand.source)
    except UserError as problem:
        return Back(1, time.monotonic() - begun, node(), told(problem))
    log = top / errand.source.inside / f".dprepro/repro/logs/{errand.row}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    start = log.stat().st_size if log.exists() else 0
    try:
        ended = _Here(errand, top, log).go()
    except UserError as problem:
        with log.open("a") as lines:
            lines.write(told(problem))
        ended = Ended(1, 0.0, node())
    return Back(ended.status, time.monotonic() - begun, node(), end(log, LOG_BYTES, start))


class _Here:
    """An errand on this machine."""

    def __init__(self, errand: Errand, top: Path, log: Path):
        self.errand, self.log = errand, log
        self.top, self.folder = top, top / errand.source.inside
        self.job = Job((), str(self.folder), str(log), errand.lock, modules=str(top))

    def go(self) -> Ended:
        """Do it.

        Raises:
            UserError: what it needs can't be brought here, or its results not back.
        """
        errand = self.errand
        slot.wait_for(self.folder / errand.lock, self._say)
        clones.pull(self.folder, errand.data)
        clones.take_over(self.folder, errand.row, errand.records)
        if self.folder not in _identified:
            ended = slot.work(replace(self.job, commands=(("identity",),)))
            if ended.status:
                return ended
            _identified.add(self.folder)
        self._compare()
        transit = Transit(self.folder, errand.transit)
        checkpoints = self.folder / errand.checkpoints
        if carrying.fetch(transit, errand.row, checkpoints):
            self._say(f"{errand.row}: goes on from another machine's checkpoint")
        with carrying.carrying(transit, errand.row, checkpoints, self.log, errand.every, self._say):
            ended = slot.work(replace(self.job, commands=errand.commands))
        if not ended.status:
            self._hand_back(transit)
        return ended

    def _compare(self) -> None:
        """Before hours of training: adopting the row would refuse it."""
        found = json.loads((self.folder / IDENTITY).read_text())
        for stage, digest in self.errand.digests:
            if found[stage].get(self.errand.row) != digest:
                raise UserError(
                    f"{self.errand.row}: its settings or code in the clone are not those of the coordinator "
                    f"({stage}); is something that decides rows not committed?"
                )

    def _hand_back(self, transit: Transit) -> None:
        pack = self.log.with_name(f"{self.errand.row}.dprepro.tar.gz")
        module = [sys.executable, "-m", "pipeline.cluster.hand_back", self.errand.row, str(pack)]
        try:
            clones.run(module, self.folder, self.top)
            transit.put(pack, f"{self.errand.row}/{carrying.PACK}")
        finally:
            with suppress(OSError):
                pack.unlink()

    def _say(self, line: str) -> None:
        with self.log.open("a") as lines:
            print(printable(line), file=lines)


def told(problem: UserError) -> str:
    """What a log says of an error: as a command that failed, whose last line tells why."""
    return f"dprepro: {printable(str(problem).splitlines()[0])}\n"
