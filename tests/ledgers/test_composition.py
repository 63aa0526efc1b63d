"""What a row and its search spend together: made-up searches, and compositions against dp-accounting's."""

from pathlib import Path
from typing import Any

import dp_accounting
import pytest
from dp_accounting import (
    GaussianDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from dprepro.accountants.bounds import Spending, composed_epsilon
from dprepro.accountants.calibration import noise_for, poisson_gaussian
from dprepro.accountants.gaussian import gaussian_epsilon
from dprepro.accountants.records import NeighboringRelation, SampledGaussian, up
from dprepro.pipeline.ledgers.composition import row_composition, trainings_of
from dprepro.pipeline.ledgers.declared import declared_guarantee
from dprepro.pipeline.params import parse
from dprepro.pipeline.results.schema import Replaced, RowTrainings, TrainingSpent
from tests.made_records import keep_search, made_up_run, made_up_training

EXAMPLES = 5000
TENSORS = 10  # of LeNet-5, as layers
CLIPPED = {"batch": 100, "epochs": 1, "learning_rate": 0.1, "clipping": "full", "sigma": 2.0}
PRIVATE = {"batch": 100, "epochs": 1, "learning_rate": 0.1, "delta": 1e-6}
DATA = {"raw": "mnist", "train": EXAMPLES, "validation": 100, "public": {"raw": "mnist", "count": 20}}


def spending(sampling: str, noise: float, examples: int = EXAMPLES, batch: int = 100) -> SampledGaussian:
    values = {"sampling": sampling, "noise_multiplier": noise, "examples": examples, "batch": batch}
    return SampledGaussian.model_validate(values)


def candidates(
    tmp_path: Path, method: str, values: dict[str, Any], tried: list[dict[str, Any]], **changes: Any
) -> list[Spending | None]:
    """What a search with one level and these settings ``tried`` spent, two seeds each."""
    searched(tmp_path, method, values, tried, **changes)
    return trainings_of([], ["made-up"], tmp_path).searched


def searched(
    tmp_path: Path, method: str, row_settings: dict[str, Any], tried: list[dict[str, Any]], **changes: Any
) -> None:
    """Write the results of a search, with what the method itself says that each candidate spends."""
    model = {"name": "lenet5", "normalization": changes.pop("normalization", "none")}
    level, seeds = changes.pop("level", {"learning_rate": 0.1}), changes.pop("seeds", 2)
    row = {
        "paper": "nguyen2023", "table": "f4", "label": "made up", "data": "small", "method": method,
        "model": model, "seeds": 1, "reproducible": False, "settings": row_settings, "levels": [level],
        "axis": next(iter(level)),
    }  # fmt: skip
    settings = parse({"raw": {"mnist": {}}, "data": {"small": DATA}, "rows": {"made-up": row}})
    line = settings.rows["made-up"]
    configs = [line.configured(*line.levels, values) for values in tried]
    guarantees = [declared_guarantee(config, line.model, "small", EXAMPLES, settings) for config in configs]
    recorded = [
        {"seeds": seeds, "spent": guarantee and TrainingSpent.of(guarantee, config.total_steps(EXAMPLES))}
        for guarantee, config in zip(guarantees, configs, strict=True)
    ]
    keep_search(tmp_path, "made-up", "other", *recorded, **changes)


def run_of(mechanism: SampledGaussian, steps: int) -> RowTrainings:
    return made_up_run("made-up", "small", made_up_training(mechanism, steps), {})


def test_each_candidate_is_what_its_own_settings_come_to(tmp_path: Path) -> None:
    """Clipping, batch, epochs and sampling vary; parts and steps follow from them."""
    tried: list[dict[str, Any]] = [
        {"clipping": "full"},
        {"clipping": "adaptive"},
        {"batch": 250, "epochs": 4},
        {"sampling": "poisson", "mini_set": 1},
    ]
    # noise is 2 C sigma: sigma distances where a clipped vector turns around, 2 sigma where one is added
    expected = [
        (spending("fixed", 2.0), 50),
        (spending("fixed", 2.0 / TENSORS**0.5), 50),
        (spending("fixed", 2.0, batch=250), 80),
        (spending("poisson", 4.0).model_copy(update={"sets": 100}), 50),
    ]
    spent = candidates(tmp_path, "batch_clipping", CLIPPED, tried)
    assert spent[::2] == spent[1::2]  # each seed is a training
    for candidate, (mechanism, steps) in zip(spent[::2], expected, strict=True):
        assert candidate[0].noise_multiplier == pytest.approx(mechanism.noise_multiplier)
        assert candidate[0].model_copy(update={"noise_multiplier": mechanism.noise_multiplier}) == mechanism
        assert candidate[1:] == (steps, 1e-5)


def test_a_candidate_with_a_target_has_the_noise_that_keeps_it(tmp_path: Path) -> None:
    (candidate, _) = candidates(tmp_path, "dpsgd", PRIVATE, [{"clip": 0.5}], level={"epsilon": 3.0})
    assert candidate == (spending("poisson", noise_for(3.0, 1e-6, 0.02, 50, "rdp")), 50, 1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"reproducible": True},
        {"normalization": "batch_bn"},
        {"level": {"epsilon": float("inf")}},
    ],
)
def test_what_was_seeded_mixes_examples_or_is_not_private_has_no_bound(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    spent = candidates(tmp_path, "dpsgd", PRIVATE, [{"clip": 0.5}], **{"level": {"epsilon": 3.0}, **changes})
    assert spent == [None, None]


# what was tried, and by hand: the noise over what one example moves, the sampling rate and the steps
VARIED: list[tuple[dict[str, Any], float, float, int]] = [
    ({"mini_set": 1}, 2 * 2.0, 0.02, 50),
    ({"mini_set": 1, "clipping": "adaptive"}, 2 * 2.0 / TENSORS**0.5, 0.02, 50),
    ({"mini_set": 1, "batch": 250, "epochs": 4}, 2 * 2.0, 0.05, 80),
    ({"mini_set": 1, "sigma": 1.5}, 2 * 1.5, 0.02, 50),
    ({"mini_set": 1, "sigma": 1.0}, 2 * 1.0, 0.02, 50),
]


def test_a_row_and_every_candidate_of_its_search_are_composed(tmp_path: Path) -> None:
    """Against dp-accounting's composition of what a hand computes; one candidate less would be less."""
    searched(
        tmp_path, "batch_clipping", CLIPPED | {"sampling": "poisson", "mini_set": 1},
        [tried for tried, *_ in VARIED], seeds=1,
    )  # fmt: skip
    whole = row_composition(run_of(spending("poisson", 4.0), 50), "made-up", tmp_path)
    assert (whole.trainings, whole.searched, whole.left_out) == (1, len(VARIED), 0)
    assert whole.by.startswith("pld")

    def theirs(left_out: int | None) -> float:
        accountant = PLDAccountant().compose(poisson_gaussian(0.02, 4.0, 50))
        for at, (_, noise, rate, steps) in enumerate(VARIED):
            if at != left_out:
                accountant.compose(poisson_gaussian(rate, noise, steps))
        return float(accountant.get_epsilon(1e-5))

    every, tolerance = theirs(None), 1.003
    assert every <= whole.epsilon < tolerance * every
    # even the one that spends least: the most noise, at the lowest rate, for the fewest steps
    least = min(range(len(VARIED)), key=lambda at: (-VARIED[at][1], VARIED[at][2:]))
    assert tolerance * theirs(least) < every


def test_mechanisms_for_different_neighbours_are_composed_for_the_stronger(tmp_path: Path) -> None:
    """No more than dp-accounting's Renyi DP allows of samples without replacement."""
    tried: list[dict[str, Any]] = [
        {"sampling": "fixed"},
        {"sampling": "poisson", "mini_set": 1},
        {"clipping": "adaptive"},
    ]
    searched(tmp_path, "batch_clipping", CLIPPED | {"sigma": 8.0}, tried, seeds=1)
    whole = row_composition(run_of(spending("fixed", 8.0), 50), "made-up", tmp_path)
    assert (whole.searched, whole.neighbouring) == (3, NeighboringRelation.REPLACE_ONE)
    theirs = RdpAccountant(range(2, 64), dp_accounting.NeighboringRelation.REPLACE_ONE)
    # an example of its own in a Poisson sample moves the sum twice as far where it is replaced
    for noise in (8.0, 8.0, 2 * 8.0 / 2, 8.0 / TENSORS**0.5):
        once = SampledWithoutReplacementDpEvent(EXAMPLES, 100, GaussianDpEvent(noise))
        theirs.compose(SelfComposedDpEvent(once, 50))
    assert 0.3 * theirs.get_epsilon(1e-5) < whole.epsilon <= theirs.get_epsilon(1e-5)


def test_known_batches_are_added_up_each_at_its_share_of_delta() -> None:
    mechanism = spending("shuffled", 2.0)
    epsilon, *_ = composed_epsilon([(mechanism, 50, 1e-5), (mechanism, 50, 1e-5), (mechanism, 100, 1e-5)])
    shares = [gaussian_epsilon(epochs**0.5 / 2, 1e-5 / 3) for epochs in (1, 1, 2)]
    assert epsilon == pytest.approx(sum(shares))


def test_different_neighbours_are_made_the_same() -> None:
    """Whole batches, so that all is Gaussian: replacing an example moves a Poisson sample's sum by 2 C."""
    poisson, fixed = (spending(sampling, 1.0, 100, 100) for sampling in ("poisson", "fixed"))
    epsilon, _, relation, _ = composed_epsilon([(poisson, 1, 1e-5), (fixed, 1, 1e-5)])
    assert relation is NeighboringRelation.REPLACE_ONE
    assert gaussian_epsilon(5**0.5, 1e-5) <= epsilon < 1.001 * gaussian_epsilon(5**0.5, 1e-5)
    # noise on data, pure, is for examples that are replaced
    epsilon, _, relation, _ = composed_epsilon([(poisson, 1, 1e-5), 3.0])
    assert relation is NeighboringRelation.REPLACE_ONE
    assert epsilon == pytest.approx(gaussian_epsilon(2, 1e-5) + 3, rel=1e-6)
    assert composed_epsilon([2.0, 3.0])[:2] == (5.0, 0.0)


def test_a_known_allocation_is_a_release_for_each_participation() -> None:
    """The attacker knows the four batches of an epoch that an example is in."""
    mechanism = spending("allocation", 4.0, 1000).model_copy(update={"participations": 4})
    epsilon, *_ = composed_epsilon([(mechanism, 100, 1e-5), 3.0])
    releases = 4 * mechanism.epochs(100)
    assert epsilon == pytest.approx(gaussian_epsilon(releases**0.5 / 2, 1e-5) + 3, rel=1e-6)


def test_the_least_delta_of_any_holds_for_all() -> None:
    mechanism = spending("poisson", 2.0)
    epsilon = composed_epsilon([(mechanism, 50, 1e-5), (mechanism, 50, 1e-7)])
    assert epsilon[1] == 1e-7
    assert epsilon[0] == composed_epsilon([(mechanism, 50, 1e-7), (mechanism, 50, 1e-5)])[0]
    assert epsilon[0] > composed_epsilon([(mechanism, 50, 1e-5)] * 2)[0]


def test_a_search_without_its_record_is_left_out_and_not_forgotten(tmp_path: Path) -> None:
    searched(
        tmp_path,
        "batch_clipping",
        CLIPPED | {"sampling": "poisson", "mini_set": 1},
        [{"sigma": 1.0}],
        seeds=1,
    )
    run = run_of(spending("poisson", 4.0), 50)
    run = run.model_copy(update={"trainings": run.trainings * 2})
    whole = row_composition(run, "made-up", tmp_path)
    without = row_composition(run, "made-up", tmp_path / "elsewhere")
    assert (whole.searched, whole.left_out) == (1, 0)
    assert (without.searched, without.left_out) == (0, 1)


def test_what_was_replaced_stays_spent(tmp_path: Path) -> None:
    """Of the row and of its search alike: others took its place, but its results were seen."""
    mechanism = spending("poisson", 4.0)
    known, unknown = (
        Replaced(trainings=2, spent=spent)
        for spent in (TrainingSpent(spending=mechanism, steps=50, delta=1e-5), None)
    )
    run = run_of(mechanism, 50)
    searched(tmp_path, "dpsgd", PRIVATE, [{"clip": 0.5}], seeds=1, level={"epsilon": 3.0}, replaced=(known,))
    alone = row_composition(run, None, tmp_path)
    composition = row_composition(run.model_copy(update={"replaced": (known, unknown)}), "made-up", tmp_path)
    assert alone is None
    assert (composition.trainings, composition.searched, composition.replaced, composition.left_out) == (
        1,
        1,
        4,
        2,
    )
    (candidate,) = trainings_of([], ["made-up"], tmp_path).searched
    assert candidate is not None
    together = composed_epsilon([*[(mechanism, 50, 1e-5)] * 5, candidate])[0]
    assert composition.epsilon == up(together)
