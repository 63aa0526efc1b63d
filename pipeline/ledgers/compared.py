"""Comparison of recorded ledgers with ledgers that are computed anew, and of searches with params.yaml."""

import re
from math import isclose
from typing import Any

from dprepro.accountants.records import MACHINE_TOLERANCE
from dprepro.errors import UserError, shown
from dprepro.pipeline.ledgers.composition import row_composition
from dprepro.pipeline.ledgers.declared import CALIBRATED, declared_guarantee
from dprepro.pipeline.ledgers.ledger import fast_accountants, slow_names
from dprepro.pipeline.ledgers.rows import entries, history_steps
from dprepro.pipeline.params import PARAMS, Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import (
    Composition,
    Ledger,
    LedgerEntry,
    Ledgers,
    RowTrainings,
    SearchRecord,
    TrainingSpent,
)

VERSION = re.compile(r" \d[^ ()]*(?=\))")  # of a library, in an accountant's name


def check_row(
    stored: Ledgers, run: RowTrainings, search: str | None, settings: Settings, quick: bool = False
) -> None:
    """Compare a row's ledgers with those of its trainings; ``search`` is the name of the row's search.

    ``quick``: leave out the accountants of libraries that take seconds to import.

    Raises:
        UserError: there is a difference.
    """
    others = fast_accountants() if quick else None
    computed = entries(run, search, settings, history_steps(run), others=others)
    check_ledgers(stored, computed, row_composition(run, search), quick)


def check_ledgers(
    stored: Ledgers, expected: list[LedgerEntry], composition: Composition | None = None, quick: bool = False
) -> None:
    """Compare ledgers and their composition with ledgers and a composition that were computed now.

    ``quick``: the ledgers may have accountants that take seconds to import.

    Raises:
        UserError: there is a difference, a ledger is missing, or one is of no training.
    """
    path = records.ledger_path(stored.row)
    computed = {(entry.level, seed): entry.ledger for entry in expected for seed in entry.seeds}
    for level, seed in {**computed, **stored.by_training}:
        location = f"{path}: {level}, seed {seed}"
        before, now = stored.by_training.get((level, seed)), computed.get((level, seed))
        if before is None:
            raise UserError(f"{location}: missing; account for it")
        if now is None:
            raise UserError(f"{location}: nothing ran; account for the row again")
        _check_equal(location, *(each.model_dump(exclude={"accountants"}) for each in (before, now)))
        _check_accountants(location, before, now, quick)
    if {each.level: (each.settings, each.metrics) for each in expected if each.settings} != {
        each.level: (each.settings, each.metrics) for each in stored.entries if each.settings
    }:
        raise UserError(f"{path}: settings or metrics: not what is computed; account for it again")
    trees = [each and each.model_dump() for each in (stored.composition, composition)]
    _check_equal(f"{path}", *trees, name="composition")


def _check_accountants(location: str, stored: Ledger, computed: Ledger, quick: bool) -> None:
    """Compare the epsilons of all accountants; of another version of a library only that it has some.

    Raises:
        UserError: an epsilon differs, or an accountant is missing or unknown.
    """
    before, now = (
        {by.accountant: {"epsilon": by.epsilon, "note": by.note} for by in each.accountants}
        for each in (stored, computed)
    )
    kinds = [{VERSION.sub("", name) for name in each} for each in (before, now)]
    if missing := kinds[1] - kinds[0]:
        raise UserError(f"{location}: accountants: {min(missing)}: missing; account for it again")
    if unknown := kinds[0] - kinds[1] - (slow_names() if quick else set()):
        raise UserError(f"{location}: accountants: {shown(min(unknown))}: unknown; account for it again")
    both = before.keys() & now.keys()
    _check_equal(
        location, *({name: each[name] for name in both} for each in (before, now)), name="accountants"
    )


def _check_equal(location: str, stored: Any, expected: Any, *, name: str = "") -> None:
    if difference := _first_difference(stored, expected, name):
        raise UserError(
            f"{location}: {difference} is not what is computed from what ran; account for it again"
        )


def _first_difference(stored: Any, expected: Any, location: str = "") -> str | None:
    """Path to the first difference of two JSON values; None: no difference. Numbers have tolerances."""
    if isinstance(stored, dict) and isinstance(expected, dict):
        pairs = [(name, stored.get(name), expected.get(name)) for name in {**expected, **stored}]
    elif (
        isinstance(stored, list | tuple)
        and isinstance(expected, list | tuple)
        and len(stored) == len(expected)
    ):
        pairs = [(str(index), *pair) for index, pair in enumerate(zip(stored, expected, strict=True))]
    elif isinstance(stored, float) and isinstance(expected, float):
        # error rates of attackers may be almost 0
        share = 1e-6 if "tradeoff" in location else 0.0
        # the cut-off of mu is a corner of a curve; machines may choose neighbouring corners
        same = 0.2 if location.endswith("risk.least_rate") else MACHINE_TOLERANCE
        return None if isclose(stored, expected, rel_tol=same, abs_tol=share) else location
    else:
        return None if stored == expected else location
    inner = (_first_difference(left, right, f"{location}.{name}".lstrip(".")) for name, left, right in pairs)
    return next(filter(None, inner), None)


def check_search(record: SearchRecord, settings: Settings) -> None:
    """Compare the record of a declared search with params.yaml.

    Raises:
        UserError: something differs, or an accuracy isn't a share of the validation examples.
    """
    name, definition = record.name, settings.searches[record.name]
    row = settings.row(definition.row)
    if record.row != definition.row or record.provenance.reproducible != row.reproducible:
        raise UserError(f"row or reproducible: not what {PARAMS} has")
    if wrong := settings.not_chosen(name, record.chosen):
        raise UserError(f"{PARAMS}: {wrong}; `dprepro search {name}` writes its choice")
    choices = list(settings.candidates(name))
    declared_candidates = [
        (row.level(configured), values, definition.seeds) for values, configured in choices
    ]
    if declared_candidates != [(each.level, each.settings, each.seeds) for each in record.candidates]:
        raise UserError(
            f"{len(record.candidates)} candidates: not the {len(choices)} of {PARAMS}'s grid; "
            f"`git checkout` the file or run `dprepro search {name}`"
        )
    examples = settings.split(row.data).validation
    compared = set()
    for place, (candidate, (_, configured)) in enumerate(zip(record.candidates, choices, strict=True)):
        where = f"candidates.{place}"
        for accuracy in candidate.validation_accuracy:
            if not isclose(accuracy * examples, round(accuracy * examples), abs_tol=1e-2):
                raise UserError(
                    f"{where}: validation_accuracy {accuracy:g}: not a share of {examples} examples"
                )
        # one comparison for all step sizes: spending doesn't depend on them, and a calibration takes a second
        essence = configured.model_dump_json(exclude={"learning_rate"}), candidate.spent
        if essence in compared:
            continue
        compared.add(essence)
        made = declared_guarantee(configured, row.model, row.data, record.provenance.examples, settings)
        steps = configured.total_steps(record.provenance.examples)
        expected = None if made is None else TrainingSpent.of(made, steps)
        if made is not None and not _same_spending(candidate.spent, expected):
            raise UserError(f"{where}: spent: not what its settings come to")


def _same_spending(recorded: TrainingSpent | None, expected: TrainingSpent | None) -> bool:
    if recorded is None or expected is None:
        return recorded is expected
    left, right = recorded.spending, expected.spending
    if isinstance(left, float) or isinstance(right, float):
        close = (
            isinstance(left, float) and isinstance(right, float) and isclose(left, right, rel_tol=CALIBRATED)
        )
        spending = right
    else:
        close = isclose(left.noise_multiplier, right.noise_multiplier, rel_tol=CALIBRATED)
        spending = left.model_copy(update={"noise_multiplier": right.noise_multiplier})
    return close and recorded.model_copy(update={"spending": spending}) == expected
