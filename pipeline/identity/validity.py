"""Validity of recorded trainings and accuracies: whether settings, data and code are the present ones.

The versions of the code that computes numbers are here, too; a method's version is in its settings, a model's
in its file (`VERSION`). Raise a version if the same settings would give other numbers from then on; results
of earlier versions become invalid. A faster or renamed implementation keeps its version. Golden values
(`tests/golden/`) detect changed numbers.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pydantic import ValidationError

from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.models.model import version
from dprepro.pipeline.params import Model, Row
from dprepro.pipeline.results.schema import EvaluationRecord, TrainingRecord

if TYPE_CHECKING:
    from dprepro.pipeline.data.prepared import Declared, Prepared

DIGITS = 1  # scikit-learn's digits in MNIST's files: pipeline/data/digits.py
SYNTHETIC = 1  # raw files that the project makes up: pipeline/data/synthetic.py
PREPARING = 1  # splits of catalogued data: pipeline/data/prepare.py
PREPARING_OWN = 1  # splits of the user's own files: pipeline/data/own/
IMAGES = 2  # reading of image files: pipeline/data/own/images.py
FEATURES = 2  # features by a public network: pipeline/data/own/trunk.py
STARTING = 1  # initial weights, and features: pipeline/pretrained/starts.py
AVERAGING = 1  # relevances: pipeline/pretrained/relevance.py
MEASURING = 1  # accuracies of trained weights: pipeline/training/evaluation.py
AUDITING = 4  # attacks: pipeline/audits/

# whether a training's frozen tensors differ from those of its row on these data: `frozen.frozen_changed`
FrozenChanged = Callable[[TrainingRecord, Row, "Prepared | Declared"], bool]


def training_versions(method: str, model: str) -> dict[str, int]:
    """Versions of the code that trains a row with this method and model."""
    return {"method": method_settings()[method].version, "model": version(model)}


def auditing_versions(method: str, model: str) -> dict[str, int]:
    """Versions of the attacked code and of the attacks."""
    return {**training_versions(method, model), "audit": AUDITING}


def reason_invalid(
    entry: TrainingRecord,
    row: Row,
    data: "Prepared | Declared | None",
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
    if data is not None and not data.trained(entry.origin):
        return "data"
    here = training_versions(row.method, row.model.name) if code else {}
    if changed := [part for part in here if entry.origin.made_by.get(part) != here[part]]:
        return f"{changed[0]} version"
    if entry.frozen and frozen_changed and data is not None and frozen_changed(entry, row, data):
        return "frozen tensors"
    return None


def reason_unmeasured(measured: EvaluationRecord | None, entry: TrainingRecord) -> str | None:
    """Reason why a training's accuracies are missing or of other weights or code; None: they are valid."""
    if measured is None:
        return "not measured"
    if measured.weights != entry.weights:
        return "other weights"
    return None if measured.measured_by == MEASURING else "measuring version"
