"""What methods are told: what means nothing is refused, and what trainings may differ in."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as scheduler

from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.methods.tan.settings import TanSettings
from tests.params.good import GOOD, PERTURBED, with_relevance

TAN = {"batch": 400, "steps": 25, "sigma": 3, "learning_rate": 4, "copies": 4, "augment": "crop_flip"}
SMALL = {"batch": 100, "sigma": 0.75}


def with_tan(simulation: dict[str, Any] = SMALL, **changes: Any) -> dict[str, Any]:
    """GOOD, where `one` is a reference run and `small` its simulation."""
    raw = copy.deepcopy(GOOD)
    raw["rows"]["one"] |= {"method": "tan", "settings": {**TAN, **changes}, "levels": [{}]}
    small = {"simulates": "one", "settings": {**TAN, **changes, **simulation}}
    raw["rows"]["small"] = raw["rows"]["one"] | small
    return raw


def reference(**changes: Any) -> dict[str, Any]:
    """`with_tan` without the simulation."""
    raw = with_tan(**changes)
    del raw["rows"]["small"]
    return raw


def tan(**changes: Any) -> TanSettings:
    return TanSettings.model_validate(TAN | changes)


def test_tan_is_as_long_as_it_says_and_noted_ten_times() -> None:
    assert tan().total_steps(1000) == tan().total_steps(7) == 25
    for steps, notes in ((25, 10), (10, 10), (1000, 10), (3, 3)):
        noted = [done for done in range(1, steps + 1) if tan(steps=steps).logs_after(done, 1000)]
        assert len(noted) == notes
        assert noted[-1] == steps
    assert tan().private
    assert not tan(sigma=0).private


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "step"])
def test_learning_rates_are_those_of_torchs_schedulers(schedule: str) -> None:
    """After a linear warm-up of five of 25 steps, whose last has the whole learning rate."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=4.0)
    by_torch = {
        "constant": lambda: scheduler.ConstantLR(optimizer, factor=1.0, total_iters=20),
        "linear": lambda: scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=20),
        "cosine": lambda: scheduler.CosineAnnealingLR(optimizer, 20),
        "step": lambda: scheduler.MultiStepLR(optimizer, [8, 16], gamma=0.5),
    }[schedule]()
    told = {"milestones": (0.4, 0.8), "gamma": 0.5} if schedule == "step" else {}
    configured = tan(schedule=schedule, warmup=0.2, **told)
    assert [configured.rate_at(step, 25) for step in range(5)] == pytest.approx([0.8, 1.6, 2.4, 3.2, 4.0])
    for step in range(5, 25):
        assert configured.rate_at(step, 25) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        by_torch.step()


def test_class_weights_fit_the_classes_and_examples_that_stay_apart() -> None:
    """Canaries of an audit have classes of their own."""
    settings = params.parse(GOOD)
    row = settings.rows["one"]
    circumstances = settings.circumstances(row)
    weighted = row.resolved[0].model_copy(update={"class_weights": (1.0, 5.0)})
    assert weighted.problem(circumstances) is None
    assert weighted.problem(replace(circumstances, classes=2)) is None
    for changes, said in (
        ({"classes": 3}, "settings.class_weights: 2 numbers; allowed: 3, in the order of classes"),
        ({"normalization": "batch_bn"}, "settings.class_weights: not allowed with normalization 'batch_bn'"),
    ):
        assert (weighted.problem(replace(circumstances, **changes)) or "").startswith(said)
    assert all(weighted.for_audit(images=images).class_weights == () for images in (False, True))


def test_a_simulation_has_batch_and_noise_smaller_by_one_factor() -> None:
    raw = with_tan()
    params.parse(raw)
    assert tan(**SMALL).simulates(tan())
    assert not tan().simulates(tan(**SMALL))
    # any level of the reference will do, and what isn't the mechanism's may differ
    raw["rows"]["one"]["levels"] = [{"batch": 800}, {"batch": 400}]
    raw["rows"]["small"] |= {"seeds": 5, "budget": "reduced", "label": "small"}
    params.parse(raw)


def with_identical(**changes: Any) -> dict[str, Any]:
    """GOOD, where `one` is trained with the same noise on every feature."""
    raw = copy.deepcopy(GOOD)
    settings_ = {**PERTURBED, **changes}
    levels = [{"epsilon": changes.get("epsilon", 1)}]
    raw["rows"]["one"] |= {"method": "ilm", "settings": settings_, "levels": levels}
    return raw


SOUND = {"variant": "sound", "sensitivity": None}


def with_batch_clipping(**changes: Any) -> dict[str, Any]:
    """GOOD, where `one` is trained by batch clipping with public examples of its own."""
    raw = copy.deepcopy(GOOD)
    raw["data"]["mnist"]["public"]["raw"] = "mnist"
    raw["rows"]["one"] |= {
        "method": "batch_clipping",
        "settings": {"batch": 100, "epochs": 1, "learning_rate": 0.5, "clipping": "adaptive"} | changes,
        "levels": [{"sigma": 0.5}],
    }
    return raw


def with_text(**changes: Any) -> dict[str, Any]:
    raw = with_batch_clipping(**changes)
    raw["data"]["mnist"]["text"] = {"tokens": 8, "vocabulary": 20}
    return raw


def with_public(raw_set: str) -> dict[str, Any]:
    raw = with_batch_clipping()
    raw["raw"]["mnist-again"] = {"of": "mnist"}
    raw["data"]["mnist"]["public"]["raw"] = raw_set
    return raw


def private(**changes: Any) -> dict[str, Any]:
    """GOOD, where `one` is trained by DP-SGD with these settings."""
    raw = copy.deepcopy(GOOD)
    raw["rows"]["one"]["settings"] |= changes
    return raw


def simulated(**changes: Any) -> dict[str, Any]:
    """`with_tan` with another simulation."""
    raw = with_tan()
    raw["data"]["other"] = raw["data"]["mnist"]
    raw["rows"]["small"] |= changes
    return raw


LESS = {"batch": 100, "sigma": 0.75}
NO_SIMULATION: list[dict[str, Any]] = [
    {"batch": 100, "sigma": 0.751}, {"batch": 400, "sigma": 3}, {"batch": 800, "sigma": 6},
    {**LESS, "clip": 2},
]  # fmt: skip
# changed settings of the row `one`, and their refusal
OF_ONE: list[tuple[dict[str, Any], str]] = [
    (reference(augment="none"), "copies: 4 of an example that is not augmented; allowed with "
     "'augment: none': 1"),
    (reference(optimizer="adam", momentum=0.9), "momentum: 0.9; allowed with 'optimizer: adam', "
     "which has its own: 0"),
    (reference(dampening=0.5), "dampening: 0.5 without momentum only shrinks the rate; allowed: 0"),
    (reference(weight_decay=0.1, schedule="step", milestones=[0.5, 0.75], gamma=2.0), "weight_decay: 0.1 "
     "times the learning rate 16.0 leaves nothing of the weights; allowed: a product below 1"),
    (with_identical(variant="sound"), "sensitivity: maps; it goes with variants 'paper' and "
     "'code', and only them"),
    (with_identical(**SOUND, noise_batch=1800), "noise_batch: 1800; allowed with 'variant: sound', "
     "which has no |L|: null"),
    *((with_identical(sensitivity=wrong), f"sensitivity: {wrong!r} is not allowed: 'maps', "
       "'neurons' or a number above 0") for wrong in ("map", -1)),
    (with_batch_clipping(mini_set=30), "mini_set: 30 does not divide the batch; allowed: divisors "
     "of 100"),
    *((with_batch_clipping(sampling=sampling, mini_set=50), f"sampling: {sampling!r} makes batches of random "
       "size, which don't divide into mini-sets; allowed: 'fixed', 'replacement', 'shuffled', or "
       "'mini_set: 1' without batch norm") for sampling in ("poisson", "allocation")),
    (with_batch_clipping(clipping="none"), "sigma: 0.5 without clipping protects nothing; allowed: "
     "0 with 'clipping: none'"),
    (with_batch_clipping(clipping="zhang", clip_decay=0.9), "clip_decay: 0.9 has no effect with "
     "'clipping: zhang'; allowed: 1"),
    (with_text(augment="crop_flip"), "augment: is for images, and 'mnist' has texts; allowed: none"),
    (private(sampling="allocation"), "accountant: 'rdp' has no bound for 'sampling: allocation'; "
     "allowed: pld"),
    (private(sampling="allocation", accountant="pld", batch=1000), "batch: 1000 of 1000 examples "
     "puts each into all 1 batches of an epoch; allowed with 'sampling: allocation': smaller batches"),
    (private(participations=2), "participations: 2; allowed without 'sampling: allocation': 1"),
]  # fmt: skip
# the same of other keys
OF_OTHERS: list[tuple[dict[str, Any], str]] = [
    *((with_tan(simulation), f"small.simulates: no level of 'one' becomes 'batch={simulation['batch']}' when "
       "batch and sigma shrink by one factor") for simulation in NO_SIMULATION),
    (simulated(model={"name": "lenet_300_100"}), "small.simulates: 'one' has another model or other data"),
    (simulated(data="other"), "small.simulates: 'one' has another model or other data"),
    (simulated(simulates="two"), "small.simulates: no such entry 'two'; allowed: one, small"),
    # whatever way 1 - .7 - .3 is rounded
    *((with_relevance(loss_share=loss, relevance_share=share), f"adaptive.settings.relevance_share: {share} "
       f"leaves the inputs nothing; allowed: below {1 - loss:g}")
      for loss, share in ((0.75, 0.25), (0.7, 0.3), (0.9, 0.1), (0.5, 0.6))),
    (with_relevance(relevance_share=0.0), "adaptive.settings.relevance_share: 0; allowed: above 0"),
    (with_public("kmnist"), "one.data: 'mnist' has a public split of 'kmnist'; 'batch_clipping' needs one of "
     "'mnist' itself"),
]  # fmt: skip
REFUSED = [*((raw, f"one.settings.{line}") for raw, line in OF_ONE), *OF_OTHERS]


@pytest.mark.parametrize(("raw", "line"), REFUSED, ids=[line for _, line in REFUSED])
def test_settings_that_mean_nothing_are_refused(raw: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        params.parse(raw)
    assert str(caught.value).splitlines()[0] == f"params.yaml: rows.{line}"
