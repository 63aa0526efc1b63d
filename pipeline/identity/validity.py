"""Validity of recorded trainings and accuracies: whether settings, data and code are the present ones."""

from dataclasses import dataclass

from pydantic import ValidationError

from dprepro.pipeline.data.declaration import prepared_here
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.data.raw import asked_edition
from dprepro.pipeline.identity import versions
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.params import Model, Row, Settings
from dprepro.pipeline.results.schema import Evaluated, Trained


@dataclass(frozen=True)
class Declared:
    """Declaration of a row's data, which are not prepared here."""

    digest: str  # `Settings.data_digest`
    examples: int  # of the training split
    edition: dict[str, str]  # by raw data set


def data_here(key: str, settings: Settings) -> Prepared | Declared:
    """Data of the row ``key``: the manifest of the prepared data set, or its declaration in params.yaml."""
    row = settings.rows[key]
    data = settings.split(row.data)
    edition = {name: asked_edition(name, settings) for name in (data.raw, data.public.raw)}
    return prepared_here(row.data, settings) or Declared(settings.data_digest(row.data), data.train, edition)


def reason_invalid(
    entry: Trained, row: Row, data: Prepared | Declared | None, *, code: bool = True
) -> str | None:
    """Reason why a training is not one of ``row`` as declared now, so that it would be trained anew.

    Args:
        entry: the recorded training.
        row: the row in params.yaml.
        data: its present data; None: not compared.
        code: whether versions of method and model count. They don't for the use of weights.

    Returns:
        'settings', 'data', 'method version', 'model version' or 'frozen tensors'; None: it is valid. Arrays
        are compared if the data are prepared here, and else their declaration. Frozen tensors are those that
        the model's `build` gives, for example from a file that was replaced; their comparison needs the
        prepared data, whose shape decides the network's size.
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
    if entry.frozen and isinstance(data, Prepared):
        from dprepro.pipeline.models.frozen import same_fingerprint

        if not same_fingerprint(frozen_here(row.model, settings, entry.seed, data), entry.frozen):
            return "frozen tensors"
    return None


def reason_unmeasured(measured: Evaluated | None, entry: Trained) -> str | None:
    """Reason why a training's accuracies are missing or of other weights or code; None: they are valid."""
    if measured is None:
        return "not measured"
    if measured.weights != entry.weights:
        return "other weights"
    return None if measured.measured_by == versions.MEASURING else "measuring version"


def frozen_here(model: Model, settings: MethodSettings, seed: int, data: Prepared) -> tuple[float, ...]:
    """Fingerprint of the frozen tensors that a model's `build` gives a training now.

    Raises:
        UserError: as `build_net`.
    """
    from dprepro.pipeline.methods.registry import fresh_net
    from dprepro.pipeline.models.frozen import frozen_fingerprint

    return frozen_fingerprint(fresh_net(seed, model, settings.input_shape(data.input_shape), data.classes))


def _has_data(entry: Trained, data: Prepared | Declared) -> bool:
    if isinstance(data, Prepared):
        return entry.origin.data == data.digests
    if entry.origin.declared is not None:
        return entry.origin.declared == data.digest
    # a training from before this digest was recorded
    return (entry.origin.examples, entry.origin.edition) == (data.examples, data.edition)


def _other_version(entry: Trained, row: Row) -> str | None:
    here = versions.training(row.method, row.model.name)
    return next((f"{part} version" for part in here if entry.origin.made_by.get(part) != here[part]), None)
