"""Comparison of a run's recorded guarantee with the guarantee that its settings declare.

No data are needed, except the relevances of the features for the method `adlm`. Without relevances the
guarantee of `adlm` isn't compared.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import isclose

from pydantic import ValidationError

from dprepro.accountants.laplace import Laplace, Releases
from dprepro.accountants.records import SampledGaussian
from dprepro.errors import UserError, shown
from dprepro.pipeline.data.prepared import load as load_prepared
from dprepro.pipeline.data.prepared import manifest_here
from dprepro.pipeline.data.raw import entry_of
from dprepro.pipeline.methods.settings import MethodSettings, method_settings
from dprepro.pipeline.methods.spending import DATA_USES, Guarantee, NetworkSizes, RelevanceSizes, Sizes
from dprepro.pipeline.params import PARAMS, Model, Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import RowTrainings, TrainingRecord

# Relative tolerance of a calibrated noise multiplier: its last digits differ between accountant versions
CALIBRATED = 1e-3


def check_spending(run: RowTrainings, settings: Settings) -> None:
    """Compare the guarantee of each recorded training with the guarantee that its settings declare.

    Raises:
        UserError: the two guarantees of a training differ, so that neither can be trusted.
    """
    for training, difference in contradictions(run, settings):
        raise UserError(
            f"{records.run_path(run.row)}: {training.level}, seed {training.seed}: {difference}: not "
            f"what its settings come to; `git checkout` the file or run `dprepro train {run.row}` again"
        )


def contradictions(run: RowTrainings, settings: Settings) -> Iterator[tuple[TrainingRecord, str]]:
    """Recorded trainings whose guarantee differs from the declared one, each with the differing field's name.

    Raises:
        UserError: params.yaml doesn't know the record's settings, model or data.
    """
    guarantees: dict[str, Guarantee | None] = {}
    for training in run.trainings:
        try:
            config = method_settings()[run.method].recorded(training.settings)
            model = Model.model_validate(run.model)
            settings.split(run.data)
        except (KeyError, ValidationError) as problem:
            raise UserError(
                f"{records.run_path(run.row)}: settings, model or data that {PARAMS} doesn't know; "
                f"run `dprepro train {run.row}` again"
            ) from problem
        examples = training.origin.examples
        if training.steps != config.total_steps(examples):
            yield training, "steps"
            continue
        if training.level not in guarantees:
            guarantees[training.level] = declared_guarantee(config, model, run.data, examples, settings)
        expected = guarantees[training.level]
        if expected is not None and (difference := _difference(training, expected)):
            yield training, difference


def declared_guarantee(
    config: MethodSettings, model: Model, data: str, examples: int, settings: Settings
) -> Guarantee | None:
    """Guarantee that the settings declare for one training on N ``examples`` of the prepared ``data``.

    None: it depends on the features' relevances in the prepared data, which are not on this machine.

    Raises:
        UserError: no noise reaches the target epsilon, or the network can't be built.
    """
    sizes = Sizes(examples, group=settings.group(data))
    if config.private and config.uses_network:
        shape = config.input_shape(input_shape(model, data, settings))
        classes = len(entry_of(settings.split(data).raw, settings).classes)
        sizes = replace(sizes, network=network_sizes(config, model, shape, classes))
    if config.private and config.uses_relevances:
        if manifest_here(data) is None:
            return None
        sizes = replace(sizes, relevances=RelevanceSizes(*load_prepared(data).relevance_source))
    return config.guarantee(sizes, model.normalization)


def network_sizes(config: MethodSettings, model: Model, shape: tuple[int, ...], classes: int) -> NetworkSizes:
    """Sizes of a model's network for the spending of a training with settings ``config``.

    ``shape`` is that of one input of the network, ``classes`` the number of its outputs.

    Raises:
        UserError: the network can't be built, or can't be trained by the method.
    """
    import torch

    from dprepro.pipeline.models.networks import build_net

    net, example = build_net(model, shape, classes), torch.zeros(1, *shape)
    return config.training_class().network_sizes(net, example)


def input_shape(model: Model, data: str, settings: Settings) -> tuple[int, ...]:
    """Shape of one input of the network for prepared ``data``, before the method's settings change it.

    (C, H, W) of images, (T, D) of texts, (F,) of features of a pretrained network.
    """
    split = settings.split(data)
    if settings.has_features(data):
        return model.features_shape
    if split.text is not None:
        return split.text.input_shape
    shape = entry_of(split.raw, settings).shape
    assert shape is not None, "what is no text has a shape"
    return shape


def _difference(training: TrainingRecord, guarantee: Guarantee) -> str | None:
    """Name of the first field that differs between a recorded and an expected guarantee; None: all agree."""
    for name in ("delta", "claimed_by"):
        if getattr(training, name) != getattr(guarantee, name):
            return name
    if {reason.key for reason in training.broken} != {reason.key for reason in guarantee.broken}:
        return "broken"
    recorded_uses = {use.key for use in training.not_covered}
    expected_uses = {use.key for use in guarantee.not_covered}
    if missing := expected_uses - recorded_uses:
        return f"not_covered lacks {min(missing)!r}"
    if unknown := recorded_uses - expected_uses - DATA_USES:
        return f"not_covered has {shown(min(unknown))}"
    if (training.protects and training.protects.key) != (guarantee.protects and guarantee.protects.key):
        return "protects"
    recorded, expected = training.spending, guarantee.spending
    if type(recorded) is not type(expected):
        return "spending"
    if isinstance(recorded, SampledGaussian) and isinstance(expected, SampledGaussian):
        if not isclose(recorded.noise_multiplier, expected.noise_multiplier, rel_tol=CALIBRATED):
            return "noise_multiplier"
        if recorded.model_copy(update={"noise_multiplier": expected.noise_multiplier}) != expected:
            return "spending"
    if isinstance(recorded, Releases) and isinstance(expected, Releases):
        return None if _same_releases(recorded, expected) else "spending"
    return None


def _same_releases(recorded: Releases, expected: Releases) -> bool:
    """Return whether the quantities, epsilons and noise of releases agree.

    Noisy relevances divide the inputs' epsilon among the pixels, so the noise of each pixel is random. Then
    only the total epsilon of the inputs is compared.
    """
    quantities = [release.quantity for release in recorded.laplace]
    if quantities != [release.quantity for release in expected.laplace]:
        return False
    drawn = {"inputs"} if "relevances" in quantities else set()

    def numbers(release: Laplace) -> tuple[float, ...]:
        return release.claimed, release.epsilon, *(() if release.quantity in drawn else release.noise)

    return all(
        isclose(*pair, rel_tol=1e-6)
        for releases in zip(recorded.laplace, expected.laplace, strict=True)
        for pair in zip(*map(numbers, releases), strict=True)
    )
