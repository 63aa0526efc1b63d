"""What a run's settings say that it spends, to be compared with what the run says.

The method is built anew from the settings, without the data, which have no say in what is spent. Relevances
alone do: where these are not here, what `adlm` spends is not compared.
"""

from collections.abc import Iterator
from math import isclose
from pathlib import Path

import torch
from pydantic import ValidationError

from pipeline.data import prepared
from pipeline.data.raw import entry_of
from pipeline.errors import UserError, shown
from pipeline.methods.base import Execution, Guarantee, Relevances, Task
from pipeline.methods.registry import build_method, build_net
from pipeline.methods.rooms import method_settings
from pipeline.methods.settings import MethodSettings
from pipeline.params import PARAMS, Model, Settings
from pipeline.pretrained.relevance import read_relevance
from pipeline.pretrained.starts import features_shape
from pipeline.privacy.laplace import Releases
from pipeline.privacy.randomness import Streams
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.results import records
from pipeline.results.schema import Run, Trained
from pipeline.training.not_covered import DATA_USES

# Noise is calibrated by bisection, whose end differs a little from version to version of the accountant
CALIBRATED = 1e-3
CPU = Execution(torch.device("cpu"), replicas_at_once=1, physical=64)


def check_spending(run: Run, settings: Settings, root: Path = Path()) -> None:
    """Make sure that a run says of every replica what its settings come to.

    Raises:
        UserError: it says otherwise of one; neither number is then to be believed.
    """
    for replica, difference in contradictions(run, settings, root):
        raise UserError(
            f"{records.run_path(run.row, root)}: {replica.level}, seed {replica.seed}: {difference}: not "
            f"what its settings come to; `git checkout` the file or run `dprepro train {run.row}` again"
        )


def contradictions(run: Run, settings: Settings, root: Path = Path()) -> Iterator[tuple[Trained, str]]:
    """Replicas of which the run says something else than their settings come to, and what that is.

    Raises:
        UserError: its settings, model or data are none.
    """
    guarantees: dict[str, Guarantee | None] = {}
    for replica in run.replicas:
        try:
            config = method_settings()[run.method].recorded(replica.settings)
            model = Model.model_validate(run.model)
            settings.split(run.data)
        except (KeyError, ValidationError) as problem:
            raise UserError(
                f"{records.run_path(run.row, root)}: settings, model or data that {PARAMS} doesn't know; "
                f"run `dprepro train {run.row}` again"
            ) from problem
        examples = run.origin(replica).examples
        if replica.steps != config.total_steps(examples):
            yield replica, "steps"
            continue
        if replica.level not in guarantees:
            guarantees[replica.level] = declared(
                run.method, config, model, run.data, examples, settings, root
            )
        expected = guarantees[replica.level]
        if expected is not None and (difference := _difference(replica, expected)):
            yield replica, difference


def declared(
    method: str,
    config: MethodSettings,
    model: Model,
    data: str,
    examples: int,
    settings: Settings,
    root: Path,
) -> Guarantee | None:
    """What the method itself, built with settings ``config`` of one replica, says that it spends.

    None where the data come with relevances that are not here.
    """
    relevance = _relevances(data, settings, root)
    if data in settings.relevances and relevance is None:
        return None
    task = _task(model, config, examples, data, settings, relevance)
    return build_method(method, task, [config], model.normalization).guarantee(0)


def inputs_of(
    model: Model, data: str, settings: Settings
) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    """Shape of a stored example, shape of an input of the network, and type of the stored values."""
    split = settings.split(data)
    raw = entry_of(split.raw, settings)
    if settings.has_features(data):
        shape = features_shape(model)
        return shape, shape, torch.float32
    if split.text is not None:
        dtype = torch.int32 if split.text.vectors is None else torch.float32
        return split.text.stored_shape, split.text.input_shape, dtype
    assert raw.shape is not None, "what is no text has a shape"
    return raw.shape, raw.shape, torch.uint8 if raw.features is None else torch.float32


def _task(
    model: Model,
    config: MethodSettings,
    examples: int,
    data: str,
    settings: Settings,
    relevance: Relevances | None,
) -> Task:
    """Task of one replica, with examples that take no memory."""
    split = settings.split(data)
    stored, shape, dtype = inputs_of(model, data, settings)
    classes = len(entry_of(split.raw, settings).classes)
    net = build_net(model, config.input_shape(shape), classes)
    placeholder = torch.zeros(1, dtype=dtype)
    labels = torch.zeros(1, dtype=torch.int64)
    return Task(
        net=net,
        parameters={name: value.detach()[None] for name, value in net.named_parameters()},
        inputs=placeholder.expand(examples, *stored),
        labels=labels.expand(examples),
        public=placeholder.expand(split.public.count, *stored),
        public_labels=labels.expand(split.public.count),
        streams=Streams(["declared"], True, CPU.device),
        execution=CPU,
        relevance=relevance,
    )


def _relevances(data: str, settings: Settings, root: Path) -> Relevances | None:
    """Those that come with the data, where these are here."""
    is_present = (root / prepared.PREPARED / data / prepared.MANIFEST).exists()
    if data not in settings.relevances or not is_present:
        return None
    return read_relevance(prepared.load(data, root), CPU.device)


def _difference(replica: Trained, guarantee: Guarantee) -> str | None:
    """The first thing that isn't what it should be."""
    for name in ("delta", "claimed_by"):
        if getattr(replica, name) != getattr(guarantee, name):
            return name
    if {reason.key for reason in replica.broken} != {reason.key for reason in guarantee.broken}:
        return "broken"
    recorded_uses = {use.key for use in replica.not_covered}
    expected_uses = {use.key for use in guarantee.not_covered}
    if missing := expected_uses - recorded_uses:
        return f"not_covered lacks {min(missing)!r}"
    if unknown := recorded_uses - expected_uses - DATA_USES:
        return f"not_covered has {shown(min(unknown))}"
    if (replica.protects and replica.protects.key) != (guarantee.protects and guarantee.protects.key):
        return "protects"
    recorded, expected = replica.spending, guarantee.spending
    if type(recorded) is not type(expected):
        return "spending"
    if isinstance(recorded, SampledGaussian) and isinstance(expected, SampledGaussian):
        if not isclose(recorded.noise_multiplier, expected.noise_multiplier, rel_tol=CALIBRATED):
            return "noise_multiplier"
        if recorded.model_copy(update={"noise_multiplier": expected.noise_multiplier}) != expected:
            return "spending"
    if (
        isinstance(recorded, Releases)
        and isinstance(expected, Releases)
        and not _same_releases(recorded, expected)
    ):
        return "spending"
    return None


def _same_releases(recorded: Releases, expected: Releases) -> bool:
    """Whether the same quantities are released at the same epsilons, with the same noise.

    Where noisy relevances divide the inputs' noise, how much of it each pixel has was drawn, and what all
    have together is the epsilon.
    """
    quantities = [release.quantity for release in recorded.laplace]
    if quantities != [release.quantity for release in expected.laplace]:
        return False
    random_quantities = {"inputs"} if "relevances" in quantities else set()
    return all(
        isclose(*pair, rel_tol=1e-6)
        for release, expected_release in zip(recorded.laplace, expected.laplace, strict=True)
        for pair in zip(
            (
                release.claimed,
                release.epsilon,
                *(() if release.quantity in random_quantities else release.noise),
            ),
            (
                expected_release.claimed,
                expected_release.epsilon,
                *(() if release.quantity in random_quantities else expected_release.noise),
            ),
            strict=True,
        )
    )
