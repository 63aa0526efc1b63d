"""One value of a valid record changed to another valid value, as by somebody who wants another result.

What made a replica (its device, its command, times) nothing can be compared with but DVC's lock, an accuracy
only with weights, and what nearly no attacker errs by not at all: those are left out. Everything
else has to be noticed by `dprepro verify`.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

from pipeline import verification
from pipeline.results import records
from tests.faults import project

Place = tuple[str | int, ...]
# the names that nothing vouches for here, and the only ones of an origin that something does
UNVOUCHED = {
    "seconds",
    "cpu_seconds",
    "started",
    "ended",
    "measured_by",
    "metrics",
    "config",
    "versions",
    "note",
    "accountant",
    "tradeoff",
    "spent",
}
OF_ORIGINS = {"data", "examples", "reproducible"}
FILES = {
    "run": records.run_path(project.ROW),
    "evaluation": records.evaluation_path(project.ROW),
    "ledger": records.ledger_path(project.ROW),
    "account": records.ledger_path("counted"),
}


def places(tree: Any, place: Place = ()) -> Iterator[Place]:
    """Where the values are that are vouched for."""
    if isinstance(tree, dict | list):
        for name, inner in tree.items() if isinstance(tree, dict) else enumerate(tree):
            if name not in UNVOUCHED and (place[:1] != ("origins",) or len(place) != 2 or name in OF_ORIGINS):
                yield from places(inner, (*place, name))
    else:
        yield place


def other(value: Any) -> Any:
    """A value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if isinstance(value, int) else 0.9 * value or 0.1
    if value is None:
        return 0.5
    return f"sha256:{0:064}" if value.startswith("sha256:") else f"{value}x"


def noticed(kind: str, chance: random.Random) -> str | None:
    """Change a value, verify, and put it back: None where it is noticed, else the value's place."""
    path = FILES[kind]
    good = path.read_bytes()
    tree = json.loads(good)
    place = chance.choice(sorted(places(tree), key=str))
    if chance.random() < 0.2:  # instead, a name that is nearly the same
        place = chance.choice([place[: end + 1] for end, name in enumerate(place) if isinstance(name, str)])
    at = tree
    for name in place[:-1]:
        at = at[name]
    if isinstance(at[place[-1]], dict | list):
        at[f"{place[-1]}x"] = at.pop(place[-1])
    else:
        at[place[-1]] = other(at[place[-1]])
    path.write_text(json.dumps(tree))
    # accounts are not computed again for what is changed of a row
    settings = project.settings().model_copy(update={"rows" if kind == "account" else "accounts": {}})
    try:
        found = any(finding.wrong for finding in verification.verify(settings))
    finally:
        path.write_bytes(good)
    return None if found else ".".join(map(str, place))
