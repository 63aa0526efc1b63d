"""Validity of recorded trainings and accuracies: whether settings, data and code are the present ones."""

from collections.abc import Callable

from pydantic import ValidationError

from dprepro.pipeline.data.prepared import Declared, Prepared
from dprepro.pipeline.identity import versions
from dprepro.pipeline.params import Model, Row
from dprepro.pipeline.results.schema import EvaluationRecord, TrainingRecord

# whether a training's frozen tensors differ from those of its row on these data: `frozen.frozen_changed`
FrozenChanged = Callable[[TrainingRecord, Row, Prepared], bool]


def reason_invalid(
    entry: TrainingRecord,
    row: Row,
    data: Prepared | Declared | None,
    frozen_changed: FrozenChanged | None,
    *,
    code: bool = True,
) -> str | None:
    """Reason why a training is not one of ``row`` as declared now, so that it would be trained anew.

    Args:
        entry: the recorded training.
        row: the row in params.yaml.
        data: its present data; None: not compared.
        frozen_changed: comparison of frozen tensors, which builds the network; None: not compared. Frozen
            tensors are those that the model's `build` gives, for example from a file that was replaced. Only
            prepared data decide the network's size, so with others they aren't compared.
        code: whether versions of method and model count. They don't for the use of weights.

    Returns:
        'settings', 'data', 'method version', 'model version' or 'frozen tensors'; None: it is valid. Arrays
        are compared if the data are prepared here, and else their declaration.
    """
    try:
        settings = type(row.resolved[0]).recorded(entry.settings)
        model = Model.model_validate(entry.model)
    except ValidationError:
        return "settings"
    declared = {(row.level(resolved), seed): resolved for resolved, seed in row.trainings}
    network = (entry.method, model.essence) == (row.method, row.model.essence)
    options = (entry.data, entry.origin.reproducible) == (row.data, row.reproducible)
    if not (network and options and declared.get(entry.key) == settings):
        return "settings"
    if data is not None and not _has_data(entry, data):
        return "data"
    if code and (changed := _other_version(entry, row)):
        return changed
    if entry.frozen and frozen_changed and isinstance(data, Prepared) and frozen_changed(entry, row, data):
        return "frozen tensors"
    return None


def reason_unmeasured(measured: EvaluationRecord | None, entry: TrainingRecord) -> str | None:
    """Reason why a training's accuracies are missing or of other weights or code; None: they are valid."""
    if measured is None:
        return "not measured"
    if measured.weights != entry.weights:
        return "other weights"
    return None if measured.measured_by == versions.MEASURING else "measuring version"


def _has_data(entry: TrainingRecord, data: Prepared | Declared) -> bool:
    if isinstance(data, Prepared):
        return entry.origin.data == data.digests
    if entry.origin.declared is not None:
        return entry.origin.declared == data.digest
    # a training from before this digest was recorded
    return (entry.origin.examples, entry.origin.edition) == (data.examples, data.edition)


def _other_version(entry: TrainingRecord, row: Row) -> str | None:
    here = versions.training(row.method, row.model.name)
    return next((f"{part} version" for part in here if entry.origin.made_by.get(part) != here[part]), None)
