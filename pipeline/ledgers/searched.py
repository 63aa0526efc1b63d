"""Comparison of a search's record with its declaration: candidates, accuracies, spending and choice."""

from math import isclose
from pathlib import Path

from dprepro.errors import UserError
from dprepro.pipeline.ledgers.declared import CALIBRATED, declared_guarantee
from dprepro.pipeline.params import PARAMS, Settings
from dprepro.pipeline.results.schema import SearchRecord, TrainingSpent


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
        made = declared_guarantee(
            row.method, configured, row.model, row.data, record.provenance.examples, settings, Path()
        )
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
