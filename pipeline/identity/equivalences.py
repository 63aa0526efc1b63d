"""Proofs that code which reads differently makes the same numbers: `pipeline/identity/equivalences.json`.

`dprepro equivalence` writes them, from steps that it ran (`pipeline.identity.equivalence`); whoever asks
whether a number stands reads them here.
"""

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.fields import Strict
from pipeline.files import write_text

PATH = Path(__file__).with_name("equivalences.json")
Kind = Literal["train", "evaluate"]
SAME_BITS, TO_ROUNDING, DIFFERENT = "same bits", "same to rounding", "different"


class Finding(Strict):
    """What the first steps of a row by two versions of the code had in common."""

    row: str
    kind: Kind
    before: str  # digest of the code that made the numbers, as their run or evaluation has it
    after: str  # digest of the code that was compared with it
    revision: str  # the commit that `before` was run at
    found: Literal["same bits", "same to rounding", "different"]
    why: str = ""  # of what is different
    difference: float  # largest relative one of a tensor after one step from a common state
    steps: int
    replicas: int
    machine: str
    date: str


class Findings(Strict):
    """All of them, in the order in which they were made."""

    findings: tuple[Finding, ...] = ()

    def canonical(self, kind: str, row: str, code: str) -> str:
        """The oldest code that is proven to make what ``code`` makes; ``code`` itself where there is none."""
        seen = {code}
        while True:
            older = [
                one.before
                for one in self.findings
                if (one.row, one.kind, one.after) == (row, kind, code)
                and one.found != DIFFERENT
                and one.before not in seen
            ]
            if not older:
                return code
            code = older[0]
            seen.add(code)

    def why_different(self, kind: str, row: str, code: str, now: str) -> str | None:
        """What the last comparison of the two found, where it found them different."""
        told = [
            one.why
            for one in self.findings
            if (one.row, one.kind, one.before, one.after, one.found) == (row, kind, code, now, DIFFERENT)
        ]
        return told[-1] if told else None


@cache
def load(path: Path = PATH) -> Findings:
    """The committed findings.

    Raises:
        UserError: the file is not one of findings.
    """
    try:
        return Findings.model_validate_json(path.read_bytes()) if path.exists() else Findings()
    except ValidationError as problem:
        raise UserError(
            f"{path}: not what `dprepro equivalence` writes: {problem.errors()[0]['msg']}"
        ) from problem


def add(new: tuple[Finding, ...], path: Path = PATH) -> None:
    """Write findings behind those there are; one of the same codes and row replaces what was found before."""
    names = {_name(one) for one in new}
    old = tuple(one for one in load(path).findings if _name(one) not in names)
    write_text(path, Findings(findings=old + new).model_dump_json(indent=1) + "\n")
    load.cache_clear()


def _name(one: Finding) -> tuple[str, ...]:
    return one.row, one.kind, one.before, one.after
