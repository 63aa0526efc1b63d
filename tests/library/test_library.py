"""What is promised to those who import `dprepro`."""

import math
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from opacus import GradSampleModule
from torch import Tensor, nn

import dprepro
from dprepro import sums as private_sums
from dprepro.clipping.clippers import ClipperFactory
from dprepro.pipeline.data import catalog, synthetic
from dprepro.pipeline.data.catalog import Edition, File
from dprepro.pipeline.files import digest_file
from tests.docs.blocks import blocks
from tests.laboratory import laboratory, refused, run
from tests.privacy.corpus import alone

TRAINING: dict[str, Any] = {"examples": 60_000, "batch": 256, "delta": 1e-5}


def test_epsilon_is_bounded_from_both_sides() -> None:
    spent = dprepro.epsilon(**TRAINING, epochs=20, noise_multiplier=1.1)
    assert spent.steps == 4688
    assert spent.epsilon_upper == spent.by[spent.proven_by or ""] == min(spent.by.values())
    assert spent.approximations.keys() == {"tan (Eq. 4)"}
    assert 1.3 < spent.epsilon_lower <= spent.epsilon_upper < 1.33
    assert dprepro.epsilon(**TRAINING, steps=4688, noise_multiplier=1.1) == spent
    numbers: dict[str, Any] = {"steps": np.int64(4688), "noise_multiplier": np.float64(1.1)}
    assert dprepro.epsilon(**TRAINING, **numbers) == spent


def test_no_approximation_is_among_the_bounds_and_a_large_delta_is_a_warning() -> None:
    """At little noise, TAN's epsilon is far below the lower bound."""
    with pytest.warns(UserWarning, match="delta: 0.01 is at least 1/N for N = 100") as caught:
        spent = dprepro.epsilon(examples=100, batch=10, delta=0.01, steps=10, noise_multiplier=0.3)
    assert caught[0].filename == __file__
    assert spent.approximations["tan (Eq. 4)"] < spent.epsilon_lower <= min(spent.by.values())


def test_a_fixed_batch_with_much_noise_has_a_bound() -> None:
    """Renyi's divergences of dp-accounting fail there, by a logarithm of 0."""
    spent = dprepro.epsilon(
        examples=1000, batch=100, steps=10, noise_multiplier=1e9, delta=1e-5, sampling="fixed"
    )
    assert spent.epsilon_upper < 1e-6
    assert spent.proven_by == "unamplified (closed form)"


def test_the_best_of_ten_trainings_spends_more_than_one_and_less_than_ten() -> None:
    settings = {**TRAINING, "epochs": 1, "noise_multiplier": 1.1}
    spent = dprepro.epsilon(**settings, best_of=10)
    assert 2 * spent.epsilon_upper < spent.best < 10 * spent.epsilon_upper
    assert dprepro.epsilon(**settings).best is None


def test_trainings_compose_to_a_longer_one_and_to_less_than_their_sum() -> None:
    half, whole = (dprepro.epsilon(**TRAINING, epochs=epochs, noise_multiplier=1.1) for epochs in (10, 20))
    two = dprepro.compose([half, half])
    # the composition's grid is coarser
    assert whole.epsilon_lower < two.epsilon_upper < min(whole.epsilon_upper + 0.01, 2 * half.epsilon_upper)
    assert dprepro.compose([half]).epsilon_upper == pytest.approx(half.epsilon_upper, abs=0.01)
    spent, oracle = [], PLDAccountant()
    for batch, noise, steps, delta in ((200, 4.0, 9, 1e-5), (500, 8.0, 30, 1e-6)):
        settings: dict[str, Any] = {"examples": 1000, "batch": batch, "steps": steps, "delta": delta}
        spent.append(dprepro.epsilon(**settings, noise_multiplier=noise))
        oracle.compose(PoissonSampledDpEvent(batch / 1000, GaussianDpEvent(noise)), steps)
    both = dprepro.compose(spent)
    assert both.delta == 1e-6
    assert both.epsilon_upper == pytest.approx(oracle.get_epsilon(1e-6), rel=0.01)
    replaced = dprepro.epsilon(**TRAINING, epochs=1, noise_multiplier=4.0, sampling="shuffled")
    mixed = dprepro.compose([half, replaced])
    assert mixed.neighbouring is NeighboringRelation.REPLACE_ONE
    assert two.neighbouring is NeighboringRelation.ADD_OR_REMOVE_ONE
    assert mixed.epsilon_upper > half.epsilon_upper + (replaced.epsilon_lower or 0)
    searched = dprepro.epsilon(**TRAINING, epochs=1, noise_multiplier=4.0, best_of=10)
    with pytest.raises(dprepro.UserError, match=r"trainings: a search \(best_of\)"):
        dprepro.compose([half, searched])
    with pytest.raises(dprepro.UserError, match="trainings: none"):
        dprepro.compose([])
    with pytest.raises(dprepro.UserError, match="trainings"):
        dprepro.compose([1.0])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("steps", 3, "steps"),
        ("noise_multiplier", -1.0, "noise_multiplier"),
        ("noise_multiplier", 1e-10, "noise_multiplier: 1e-10 is not allowed"),
        ("delta", 2.0, "delta"),
        ("delta", 1e-101, "delta: 1e-101 is not allowed"),
        # near 1 its last bits decide: the bounds crossed
        ("delta", 0.5, r"delta: .*0\.5"),
        ("examples", "60000", "examples"),
        ("sampling", "replacement", "sampling"),
        ("best_of", "3", "best_of"),
        ("epochs", math.nan, "epochs"),
        ("epochs", 1e300, r"epochs: 1e\+300 is not allowed: Input should be less than or equal to 1e\+\d+$"),
    ],
)
def test_what_is_not_allowed_is_a_line(key: str, value: Any, said: str) -> None:
    with pytest.raises(dprepro.UserError, match=said):
        dprepro.epsilon(**{**TRAINING, "epochs": 20, "noise_multiplier": 1.1, key: value})


def test_losses_far_below_zero_overflow_nothing() -> None:
    """Random allocation with little noise ended in an OverflowError of dp-accounting."""
    for noise in (0.05, 0.06):  # below 0.06 its grid had NaN
        little: dict[str, Any] = {"noise_multiplier": noise, "delta": 1e-5}
        with warnings.catch_warnings(action="error"):
            spent = dprepro.epsilon(examples=2, batch=1, steps=40, sampling="allocation", **little)
        every = dprepro.epsilon(examples=1, batch=1, steps=20, **little)
        assert 0.95 * every.epsilon_upper < spent.epsilon_upper <= 1.001 * every.epsilon_upper


@pytest.mark.parametrize("wrong", ["1", None, math.nan, 0, -1.0])
def test_no_noise_is_for_what_is_no_epsilon(wrong: Any) -> None:
    with pytest.raises(dprepro.UserError, match="epsilon"):
        dprepro.noise_multiplier(wrong, **TRAINING, epochs=1)


@pytest.mark.parametrize(
    ("scores", "more", "says"),
    [
        (["a"] * 9, {}, "without: list that is no array of real numbers"),
        ([[1.0], [1.0, 2.0]] * 5, {}, "without: list"),
        (torch.full((9,), 1j), {}, "without: Tensor of torch.complex64 that is no array of real"),
        ([math.nan] * 9, {}, r"without: of shape \(9,\)"),
        (np.zeros((9, 2)), {}, r"without: of shape \(9, 2\)"),
        ([0.0] * 9, {"delta": 1}, "delta: 1 is not allowed"),
    ],
)
def test_no_epsilon_is_shown_by_what_are_no_scores(scores: Any, more: dict[str, Any], says: str) -> None:
    with pytest.raises(dprepro.UserError, match=says) as refused:
        dprepro.audit(scores, [1.0] * 9, **{"delta": 0, **more})
    assert "\n" not in str(refused.value)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)
    ).double()


INPUTS, LABELS = torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"labels": LABELS + 1}, "labels: 1 to 3; allowed: 0 to 2"),
        ({"labels": LABELS - 100}, "labels: -100 to -98; allowed: 0 to 2"),  # which torch would leave out
        ({"labels": LABELS.float()}, r"labels: torch.float32; allowed: whole numbers"),
        ({"labels": torch.tensor(0), "inputs": torch.tensor(0.0)}, r"labels: of shape \(\)"),
        ({"labels": LABELS[:2]}, "labels: of shape"),
        ({"inputs": INPUTS.double()}, "inputs: torch.float64 on cpu, which the network doesn't take"),
        (
            {"inputs": INPUTS.numpy()},
            "inputs: ndarray is not allowed; allowed: a tensor, or a dict of tensors",
        ),
        ({"network": nn.Sequential(nn.Flatten(), nn.LazyLinear(3))}, "network: 1.weight has no size yet"),
        (
            {"network": GradSampleModule(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)))},
            "network: GradSampleModule of Opacus, .* to_standard_module",
        ),
        ({"clip": math.inf}, "clip: inf is not allowed"),
        ({"inputs": INPUTS.to_sparse()}, "inputs: torch.sparse_coo; allowed: dense"),
        (
            {
                "network": nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 3)),
                "inputs": torch.full((3, 2), 5),
            },
            "inputs: index out of range in self; allowed: tokens",
        ),
    ],
)
def test_what_has_no_clipped_sum_is_a_line(wrong: dict[str, Any], says: str) -> None:
    right = {"network": network().float(), "inputs": INPUTS, "labels": LABELS, "clip": 1.0}
    with pytest.raises(dprepro.UserError, match=says):
        dprepro.clipped_sum(**{**right, **wrong})


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8])
def test_labels_are_whole_numbers_of_any_type(kind: torch.dtype) -> None:
    expected = dprepro.clipped_sum(network().float(), INPUTS, LABELS, 1.0)
    torch.testing.assert_close(dprepro.clipped_sum(network().float(), INPUTS, LABELS.to(kind), 1.0), expected)


def test_an_empty_poisson_sample_has_a_sum_of_zeros() -> None:
    net = network().float()
    for _ in range(2):  # before and after the network's tests of other batches
        empty = dprepro.clipped_sum(net, INPUTS[:0], LABELS[:0], 1.0)
        assert {name: value.shape for name, value in empty.sums.items()} == {
            name: value.shape for name, value in net.named_parameters()
        }
        assert not any(value.any() for value in empty.sums.values())
        assert (empty.norms.shape, empty.losses.shape) == ((0, 1), (0,))
        dprepro.clipped_sum(net, INPUTS, LABELS, 1.0)
    mixing = nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.BatchNorm1d(3))
    with pytest.raises(dprepro.UserError, match="mixes examples"):
        dprepro.clipped_sum(mixing, INPUTS[:0], LABELS[:0], 1.0)


def test_a_network_is_tested_once_for_each_length_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mean(nn.Module):
        def forward(self, words: Tensor) -> Tensor:
            return words.mean(1)

    net = nn.Sequential(nn.Embedding(9, 4), Mean(), nn.Linear(4, 3))
    texts, tested = torch.randint(9, (3, 7)), list[torch.Size]()
    original = private_sums.clipper_factory

    def counted(net: nn.Module, example: Tensor, *others: Any) -> ClipperFactory:
        tested.append(example.shape)
        return original(net, example, *others)

    monkeypatch.setattr(private_sums, "clipper_factory", counted)
    for length in (7, 5, 7, 5):
        norms, sums = alone(net, texts[:, :length], LABELS, 1.0)
        actual = dprepro.clipped_sum(net, texts[:, :length], LABELS, 1.0)
        torch.testing.assert_close(actual.norms[:, 0], norms)
        torch.testing.assert_close(dict(actual.sums), sums)
    assert tested == [(1, 7), (1, 5)]
    net[1].register_forward_hook(lambda *_: None)
    for length in (7, 5):
        dprepro.clipped_sum(net, texts[:, :length], LABELS, 1.0)
    assert tested == [(1, 7), (1, 5)] * 2
    dprepro.clipped_sum(net.eval(), texts, LABELS, 1.0)
    assert tested == [*[(1, 7), (1, 5)] * 2, (1, 7)]
    hook = net[2].register_forward_hook(lambda *_: None)
    dprepro.clipped_sum(net, texts, LABELS, 1.0)
    hook.remove()
    net[2].register_forward_hook(lambda layer, inputs, outputs: outputs - outputs.mean(0))  # in its place
    with pytest.raises(dprepro.UserError, match="mixes"):
        dprepro.clipped_sum(net, texts, LABELS, 1.0)


def test_a_network_is_tested_again_even_if_an_attribute_gets_the_id_of_one_that_is_gone() -> None:
    class Last(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return self.function(inputs.flatten(1)[:, :3] * self.weight)

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.function: Any = None

    net = Last()
    for _ in range(5):
        net.function = lambda outputs: outputs + 1
        dprepro.clipped_sum(net, INPUTS, LABELS, 1.0)
        net.function = None  # the next function often gets its memory
        net.function = lambda outputs: outputs - outputs.mean(0)
        with pytest.raises(dprepro.UserError, match="mixes"):
            dprepro.clipped_sum(net, INPUTS, LABELS, 1.0)
        net.function = None


def test_scores_of_a_gaussian_mechanism_show_an_epsilon_below_its_own() -> None:
    random = np.random.default_rng(0)
    shown = dprepro.audit(random.normal(0, 1, 4000), random.normal(1, 1, 4000), delta=1e-5)
    # mu-GDP at mu 1 has epsilon 4.38 at this delta (Dong et al. 2022, Corollary 1)
    assert 0.5 < shown.epsilon_lower < shown.if_gaussian < 4.38
    same = dprepro.audit(random.normal(0, 1, 4000), random.normal(0, 1, 4000), delta=1e-5)
    assert same.epsilon_lower < 0.2
    with pytest.raises(dprepro.UserError, match="within"):
        dprepro.audit([0.0] * 10, [1.0], delta=0)


def test_what_the_page_shows_runs_and_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    first, training, *others = (
        block.text for block in blocks("docs/library.md") if block.language == "python"
    )
    exec(first, {})
    exec(training, {})
    printed = capsys.readouterr().out
    said = re.findall(r"; (\d*\.\d+)", first + training)
    assert len(said) == 4
    numbers = [float(number) for number in re.findall(r"\d+\.\d{4,}", printed)]
    for number in said:
        assert any(round(value, len(number.partition(".")[2])) == float(number) for value in numbers), number
    for block in others:
        if "PrivateBackward" not in block:  # test_backward.py runs those
            exec(block, {})


PARAMS = """\
source: {kind: official}
code: [others]
raw: {shapes: {}}
data:
  shapes: {raw: shapes, train: 50, validation: 10, public: {raw: shapes, part: train, count: 4}}
rows: {}
"""


def test_a_packages_data_set_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a mirror with the bytes that the entry pins, and prepared; other bytes are refused."""
    mirror, project, package = (tmp_path / name for name in ("mirror", "project", "others/data_sets"))
    for folder in (mirror, project, package):
        folder.mkdir(parents=True)
    mnist = catalog.catalogued("mnist")
    synthetic.write(mnist, 70, 20, mirror)

    def pinned(files: tuple[File, ...]) -> tuple[File, ...]:
        paths = [mirror / file.name for file in files]
        return tuple(File(path.name, path.stat().st_size, digest_file(path)) for path in paths)

    official = mnist.edition("official")
    editions = {"official": Edition(pinned(official.train), pinned(official.test))}
    entry = replace(mnist, key="shapes", editions=editions, folders=("",))
    (package / "shapes.py").write_text(f"from dprepro.pipeline.data.catalog import *\nSHAPES = {entry}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("DPREPRO_MIRROR", str(mirror))
    with laboratory(project, PARAMS):
        assert "4 files, edition official" in run("fetch shapes")
        assert "train 50, validation 10, test 20, public 4" in run("prepare shapes")
        first = mirror / official.train[1].name
        first.write_bytes(first.read_bytes()[:-1] + b"!")
        assert str(first) in refused("fetch shapes")


def test_sums_that_rounding_would_move_further_than_the_bound_are_refused() -> None:
    inputs, labels = torch.rand(4, 1, 8, 8), torch.zeros(4, dtype=torch.long)
    for half in (torch.bfloat16, torch.float16):
        with pytest.raises(dprepro.UserError, match=r"network: .* allowed: float32, float64"):
            dprepro.clipped_sum(network().to(half), inputs.to(half), labels, 1.0)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(dprepro.UserError, match=r"torch\.autocast"):
        dprepro.clipped_sum(network().float(), inputs, labels, 1.0)
    with torch.inference_mode(), pytest.raises(dprepro.UserError, match=r"torch\.inference_mode"):
        dprepro.clipped_sum(network().float(), inputs, labels, 1.0)
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(dprepro.UserError, match="matrix products: tf32"):
            dprepro.noisy_sum(network().float(), inputs, labels, 1.0, 1.0)
    finally:
        torch.set_float32_matmul_precision("highest")
    dprepro.noisy_sum(network().float(), inputs, labels, 1.0, 1.0)


def test_a_hook_that_changes_the_network_it_was_made_for_is_refused() -> None:
    """A copy of the network, as in the trial, still changes the network that the hook closes over."""
    net = nn.Sequential(nn.Linear(6, 3))

    @torch.no_grad()
    def clamp(layer: nn.Module, inputs: object) -> None:
        net[0].weight.clamp_(-0.1, 0.1)

    net.register_forward_pre_hook(clamp)
    with pytest.raises(dprepro.UserError, match=r"changes '0\.weight' when it runs"):
        dprepro.clipped_sum(net, torch.rand(4, 6), torch.zeros(4, dtype=torch.long), 1.0)


def test_a_step_that_is_begun_is_counted() -> None:
    whole = {"examples": 1000, "batch": 1000, "noise_multiplier": 1.0, "delta": 1e-5}
    assert dprepro.epsilon(**whole, epochs=1.01).steps == 2  # type: ignore[arg-type]
    assert dprepro.epsilon(**whole, epochs=2).steps == 2  # type: ignore[arg-type]
