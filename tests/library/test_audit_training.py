"""An Opacus training as it should be, and with each mistake that `audit_training` looks for planted in it."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import dprepro
from dprepro.auditing.mistakes import Mistake, _dispersion, _reused, of_allocation, of_batches, recognise
from dprepro.auditing.training import CERTAIN, FALSE_ALARM_RATE
from tests.docs.blocks import blocks

NOISE, BATCH, STEPS, DELTA = 2.0, 50, 100, 1e-5
# Indices of a step's batch, or a mask, for generator, number of examples and step
Sampler = Callable[[np.random.Generator, int, int], np.ndarray]


Plant = Callable[[DPOptimizer, int, int], None]  # given a step's optimizer, number of rows, and the step


def training(
    before: Plant = lambda optimizer, rows, step: None,
    batch: int = BATCH,
    private: Callable[[int], dict[str, Any]] = lambda size: {"shuffle": True},
    **loading: Any,
) -> Callable[[np.ndarray], Iterator[DPOptimizer]]:
    """Opacus, with a mistake planted ``before`` each step.

    ``private`` gives options of the loader that is made private, and ``loading`` those of one in its place.
    """

    def train(examples: np.ndarray) -> Iterator[DPOptimizer]:
        network, optimizer, loader = private_linear(examples, batch, **private(len(examples)))
        if loading:
            sizes: dict[str, Any] = {} if "batch_sampler" in loading else {"batch_size": batch}
            loader = DataLoader(loader.dataset, **sizes, **loading)
        step = 0
        while step < STEPS:
            for (rows,) in loader:
                optimizer.zero_grad()
                network(rows).mean().backward()
                before(optimizer, len(rows), step)
                optimizer.step()
                yield optimizer
                step += 1

    return train


def audited(train: Callable[[np.ndarray], Any], **claims: Any) -> dprepro.TrainingAudit:
    torch.manual_seed(0)
    return dprepro.audit_training(train, delta=DELTA, **claims)


def names(audit: dprepro.TrainingAudit) -> set[str]:
    return {mistake.name for mistake in audit.looks_like}


def test_a_right_training_is_sound_and_its_claims_are_read() -> None:
    audit = audited(training(), epsilon_claimed=10.0)
    assert audit.claimed == dprepro.Claims(NOISE, 0.05, STEPS, DELTA, 10.0)
    spent = dprepro.epsilon(examples=1000, batch=50, noise_multiplier=NOISE, delta=DELTA, steps=STEPS)
    assert audit.epsilon_upper == spent.epsilon_upper
    assert audit.verdict == "nothing found"
    assert audit.looks_like == ()
    assert 0 < audit.could_show < spent.epsilon_upper


@pytest.mark.parametrize("every", [True, False])
def test_batches_that_opacus_splits_are_one_step(every: bool) -> None:
    """Yielded after each part or after the last part; the parts' raw gradients were taken for releases."""

    def train(examples: np.ndarray) -> Iterator[DPOptimizer]:
        network, optimizer, loader = private_linear(examples)
        for _ in range(2):
            with BatchMemoryManager(
                data_loader=loader, max_physical_batch_size=20, optimizer=optimizer
            ) as parts:
                for (rows,) in parts:
                    optimizer.zero_grad()
                    network(rows).mean().backward()
                    optimizer.step()
                    if every or not optimizer._is_last_step_skipped:
                        yield optimizer

    audit = audited(train)
    assert audit.claimed.steps == 40
    assert audit.verdict == "nothing found"
    assert audit.looks_like == ()


def test_the_batches_of_a_split_step_are_whole() -> None:
    def train(examples: np.ndarray) -> Iterator[DPOptimizer]:
        network, optimizer, _ = private_linear(examples)
        for rows in torch.from_numpy(examples).split(50):  # in order
            for number, part in enumerate(rows.split(20)):
                optimizer.signal_skip_step(number < 2)
                optimizer.zero_grad()
                network(part).mean().backward()
                optimizer.step()
                yield optimizer

    assert "sampler" in names(audited(train))


def private_linear(examples: np.ndarray, batch: int = BATCH, **loading: Any) -> tuple[Any, Any, Any]:
    """Linear network, optimizer and loader of an Opacus engine."""
    network: Any = nn.Linear(examples.shape[1], 1, bias=False)
    dataset = TensorDataset(torch.from_numpy(examples))
    return PrivacyEngine(accountant="rdp").make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        data_loader=DataLoader(dataset, batch_size=batch, **loading),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
    )


def test_the_verdict_is_one_and_stands_first() -> None:
    """`broken` was False beside a hint with p = 4e-64."""
    claims, shown = dprepro.Claims(NOISE, 0.05, STEPS, DELTA, 2.0), dprepro.AuditedEpsilon(1.0, 3.0, 0.95)
    audit = dprepro.TrainingAudit(claims, 5.0, shown, (), 0.7)
    assert str(audit).startswith(
        "wrong: the attack shows epsilon of a Gaussian mechanism >= 3 (confidence 0.95), claimed 2\n"
    )
    right = replace(audit, claimed=replace(claims, epsilon=4.0))
    assert str(right).startswith("nothing found: a perfect attacker could have shown epsilon >= 0.70; ")
    assert replace(audit, claimed=replace(claims, epsilon=None), epsilon_upper=2.9).verdict == "wrong"
    certain, hint = Mistake("layers", "a <b>", 4e-64), Mistake("noise", "looks like at least 58", 1e-6)
    assert str(replace(right, looks_like=(hint,))).startswith(
        "suspicious: noise: looks like at least 58 (p ="
    )
    wrong = replace(right, looks_like=(hint, certain))
    assert repr(wrong).startswith("wrong: layers: a <b> (p = 4e-64)\n  noise: looks like")
    html = wrong._repr_html_()
    assert html.startswith("<p><strong>wrong</strong>: layers: a &lt;b&gt; (p = 4e-64)</p><ul><li>noise: ")


def test_a_seed_in_the_training_is_seen() -> None:
    """Its two runs drew different numbers of coins, and so other noise."""

    def seeded(examples: np.ndarray) -> Iterator[DPOptimizer]:
        torch.manual_seed(42)
        yield from training()(examples)

    audit = audited(seeded)
    assert (audit.verdict, names(audit)) == ("wrong", {"seeded"})
    assert "seeded noise" in str(audit)


def test_a_rate_that_opacus_rounds_to_a_whole_batch_is_read_unrounded() -> None:
    """Of 1,000 examples in 16 batches it takes a sixteenth, and divides by 62."""
    claimed = audited(training(batch=64)).claimed
    assert claimed.sample_rate == 1 / 16


def add_noise(optimizer: DPOptimizer, scale: float) -> None:
    for parameter in optimizer.params:
        parameter.grad = parameter.summed_grad + scale * torch.randn_like(parameter)


def noise_of(scale: float) -> Plant:
    def plant(optimizer: DPOptimizer, rows: int, step: int) -> None:
        optimizer.add_noise = lambda: add_noise(optimizer, scale)

    return plant


def clip_mean(times: int) -> Plant:
    """Clip the mean gradient, and release it so many times."""

    def plant(optimizer: DPOptimizer, rows: int, step: int) -> None:
        def clip() -> None:
            for parameter in optimizer.params:
                mean = parameter.grad_sample.mean(0)
                parameter.summed_grad = mean / mean.norm().clamp_min(1) * times

        optimizer.clip_and_accumulate = clip
        optimizer.add_noise = lambda: add_noise(optimizer, NOISE)

    return plant


def no_clipping(optimizer: DPOptimizer, rows: int, step: int) -> None:
    optimizer.max_grad_norm = 1e6
    optimizer.add_noise = lambda: add_noise(optimizer, NOISE)


def true_divisor(optimizer: DPOptimizer, rows: int, step: int) -> None:
    optimizer.expected_batch_size = max(1, rows)


def true_mean_then_noise(optimizer: DPOptimizer, rows: int, step: int) -> None:
    def noise() -> None:
        for parameter in optimizer.params:
            mean = parameter.summed_grad / max(1, rows)
            parameter.grad = BATCH * (mean + NOISE / BATCH * torch.randn_like(mean))

    optimizer.add_noise = noise


def reused(every: int) -> Plant:
    def plant(optimizer: DPOptimizer, rows: int, step: int) -> None:
        optimizer.generator = torch.Generator().manual_seed(step % every)

    return plant


def weighted(uneven: bool) -> WeightedRandomSampler:
    """Of two classes, one of which has a tenth of the examples, in every batch alike often; or of one."""
    weights = np.where(np.arange(1000) % 10 == 0, 9.0 if uneven else 1.0, 1.0)
    return WeightedRandomSampler(weights.tolist(), 1000, replacement=True)


class Padded:
    """Poisson samples that are filled up to a fixed size with the data's first example."""

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng(0)
        for _ in range(20):
            sample = np.flatnonzero(random.random(1000) < 0.05).tolist()
            yield sample + [0] * max(0, 90 - len(sample))

    def __len__(self) -> int:
        return 20


@pytest.mark.parametrize(
    ("train", "mistake", "text", "shown"),
    [
        (training(noise_of(NOISE / BATCH)), "noise", "on the sum calibrated to the mean", True),
        (training(noise_of(NOISE * BATCH)), "noise", "on the mean calibrated to the sum", False),
        (training(clip_mean(BATCH)), "clipping", "after averaging", True),
        (training(clip_mean(1)), "noise", "clipped as a whole", False),
        (training(no_clipping), "clipping", "or none", True),
        (training(true_divisor), "divisor", "true batch size", False),
        (training(true_mean_then_noise), "divisor", "true batch size before noise", False),
        (training(true_divisor, batch=64, shuffle=True), "divisor", "last batch", False),
        (training(shuffle=False), "sampler", "isn't Poisson", True),
        (training(sampler=weighted(uneven=True)), "weights", "a weighted sampler", False),
        (training(sampler=weighted(uneven=True)), "sampler", "with replacement", False),
        (training(sampler=weighted(uneven=False)), "sampler", "with replacement", False),
        (training(batch_sampler=Padded()), "padding", "padding counts", False),
        (training(reused(1)), "reused", "used again", True),
        (training(reused(STEPS)), "seeded", "the same in each run", False),
    ],
)
def test_a_planted_mistake_is_found(train: Any, mistake: str, text: str, shown: bool) -> None:
    audit = audited(train, noise_multiplier=NOISE, sample_rate=0.05)
    (hint,) = [each for each in audit.looks_like if each.name == mistake]
    assert text in hint.looks_like
    assert audit.verdict == ("wrong" if shown or hint.p < CERTAIN else "suspicious")
    assert (max(audit.attack.epsilon_lower, audit.attack.if_gaussian) > audit.epsilon_upper) == shown


def by_hand(
    noise: Callable[[np.random.Generator, int], np.ndarray] = lambda random, width: random.normal(size=width),
    layers: int = 1,
    clip: float = 1.0,
    divisor: Callable[[np.ndarray], float] = lambda examples: 1.0,
    sample: Sampler = lambda random, size, step: random.random(size) < 0.05,
    steps: int = STEPS,
    batches: bool = False,
) -> Callable[[np.ndarray], Iterator[Any]]:
    """DP-SGD whose parts can be changed; each of its ``layers`` is clipped to ``clip``.

    With ``batches`` it yields its batches too.
    """

    def train(examples: np.ndarray) -> Iterator[Any]:
        random = np.random.default_rng(int(torch.randint(2**31, ())))
        for step in range(steps):
            batch = examples[sample(random, len(examples), step)]
            parts = np.array_split(batch, layers, axis=1)
            lengths = [np.linalg.norm(part, axis=1, keepdims=True) for part in parts]
            clipped = [
                part * (clip / np.maximum(length, clip)) for part, length in zip(parts, lengths, strict=True)
            ]
            sums = np.concatenate(clipped, axis=1).sum(0)
            released = (sums + NOISE * noise(random, len(sums))) / divisor(examples)
            yield (released, batch) if batches else released

    return train


def silent(share: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    """No noise on a share of the weights, which lie anywhere."""

    def noise(random: np.random.Generator, width: int) -> np.ndarray:
        return random.normal(size=width) * (np.random.default_rng(0).random(width) >= share)

    return noise


def quarter(random: np.random.Generator, width: int) -> np.ndarray:
    """A quarter of the noise on a quarter of the weights."""
    return random.normal(size=width) * np.where(np.arange(width) < width // 4, 0.25, 1)


def uniform(random: np.random.Generator, width: int) -> np.ndarray:
    return random.uniform(-(3**0.5), 3**0.5, size=width)


@pytest.mark.parametrize(
    ("train", "mistake", "text"),
    [
        (by_hand(silent(0.02)), "uneven", "2.[0-9]* % of the weights get no noise"),
        (by_hand(quarter), "uneven", r"noise is 0\.\d+ of the usual on some weights, and 1\.\d+ on others"),
        (by_hand(uniform), "distribution", r"excess kurtosis of -1\.2"),
        (by_hand(layers=2), "layers", r"1\.\d+ times as far .* each layer is clipped to the whole bound"),
        (by_hand(divisor=len, steps=20), "divisor", "divided by the number of examples"),
        (by_hand(divisor=lambda examples: int(0.05 * len(examples))), "divisor", "the number of examples"),
    ],
)
def test_noise_layers_and_divisors_are_looked_at(train: Any, mistake: str, text: str) -> None:
    (hint,) = audited(train, noise_multiplier=NOISE, sample_rate=0.05).looks_like
    assert hint.name == mistake
    assert re.search(text, hint.looks_like)


@pytest.mark.parametrize(
    "train",
    [
        by_hand(divisor=lambda examples: 50),
        by_hand(layers=4, clip=0.5),  # a share of the bound for each layer
        by_hand(sample=lambda random, size, step: random.random(size) < 50 / size),
        by_hand(steps=20),
    ],
)
def test_right_trainings_have_no_name(train: Any) -> None:
    assert audited(train, noise_multiplier=NOISE, sample_rate=0.05).looks_like == ()


def test_a_divisor_of_opacus_that_is_the_number_of_examples_is_seen() -> None:
    """Its own, the expected batch size, follows that number too, which Opacus takes for public."""

    def train(examples: np.ndarray) -> Iterator[DPOptimizer]:
        def divided(optimizer: DPOptimizer, rows: int, step: int) -> None:
            optimizer.expected_batch_size = len(examples)

        yield from training(divided)(examples)

    (hint,) = audited(train).looks_like
    assert hint.name == "divisor"


def test_without_its_batches_a_fixed_size_and_a_true_divisor_look_alike() -> None:
    def fixed(random: np.random.Generator, size: int, step: int) -> np.ndarray:
        return random.choice(size, 50, replace=False)

    claims = {"noise_multiplier": NOISE, "sample_rate": 0.05}
    (either,) = audited(by_hand(sample=fixed), **claims).looks_like
    assert "isn't Poisson, or sums divided by the true batch size" in either.looks_like
    (known,) = audited(by_hand(sample=fixed, batches=True), **claims).looks_like
    assert known.name == "sampler"
    assert "true batch size" not in known.looks_like


def test_a_weighted_sampler_that_opacus_takes_for_another_rate_is_seen() -> None:
    """Opacus takes the rate from how many the sampler draws an epoch, and not from how many there are."""

    def sampler(size: int) -> dict[str, Any]:
        return {"sampler": WeightedRandomSampler([1.0] * size, 200, replacement=True)}

    audit = audited(training(batch=20, private=sampler), sample_rate=20 / 1000)
    (hint,) = audit.looks_like
    assert hint.name == "rate"
    seen = re.fullmatch(r"the sampling rate is (\S+), claimed 0.02", hint.looks_like)
    assert seen
    assert float(seen[1]) == pytest.approx(0.1, rel=0.05)
    assert audit.verdict == "wrong"


def test_a_plain_function_is_audited_by_what_it_claims() -> None:
    claims = {"noise_multiplier": NOISE, "sample_rate": 0.05}
    right = audited(by_hand(steps=40), **claims)
    assert right.verdict == "nothing found"
    assert names(right) == set()
    twice = by_hand(sample=lambda random, size, step: random.random(size) < 0.1, steps=40)
    assert names(audited(twice, **claims)) >= {"noise"}


def test_right_trainings_have_small_p_values_as_seldom_as_said() -> None:
    p_values: dict[str, list[float]] = {}
    for answers in right_trainings(300, 0.05, 60):
        for name, each in answers:
            p_values.setdefault(name, []).append(each.p)
    assert set(p_values) == {
        "reused", "seeded", "clipping", "layers", "divisor", "noise", "uneven", "distribution", "sampler",
        "sampler of batches", "weights of batches",
    }  # fmt: skip
    for p in p_values.values():
        assert np.mean(np.array(p) < 0.1) < 0.15
        assert np.mean(np.array(p) < 0.01) < 0.03


def test_a_right_training_gets_a_name_at_most_once_in_a_thousand() -> None:
    """Over all tests made; a false `clipping` was met about once in 150 trainings."""
    named = 0
    for answers in right_trainings(500, 0.05, 20, width=60):
        named += any(each.p < FALSE_ALARM_RATE / len(answers) for _, each in answers)
    assert named <= 2  # more than 2 of an expected half have a probability of 1.4 %


def test_noise_whose_sum_is_not_seen_is_at_least_something() -> None:
    """A noise multiplier of 110 looked like 58, which was the largest that could have been seen."""
    random = np.random.default_rng(0)
    train = by_hand(noise=lambda _, width: 110 / NOISE * random.normal(size=width), steps=60)
    audit = audited(train, noise_multiplier=NOISE, sample_rate=0.05)
    (hint,) = audit.looks_like
    seen = re.search(r"looks like at least (\S+), claimed 2", hint.looks_like)
    assert seen
    assert float(seen[1]) < 110


def test_steps_with_one_noise_are_numbered_as_they_ran() -> None:
    """Of 60 steps, those with one noise were called 64 and 65, counted over two runs."""
    random = np.random.default_rng(0)
    blanks = [random.normal(size=(60, 500)) for _ in range(2)]
    blanks[1][5] = blanks[1][4]
    reused, seeded = _reused(blanks)
    assert "noise of steps 4 and 5 correlates" in reused.looks_like
    assert seeded.p > 1e-3


def right_trainings(
    runs: int, rate: float, steps: int, width: int = 500
) -> Iterator[list[tuple[str, Mistake]]]:
    """What all tests answer of simulated runs on 1,000 examples and on 1,050."""
    size = 1000
    random, kinds = np.random.default_rng(0), np.bincount(np.arange(size) % 3)
    for _ in range(runs):
        empty = [NOISE * random.normal(size=(steps, width)) for width in (3 * width, 2 * width)]
        blanks = [run[:, -width:] for run in empty]
        crowd = random.binomial(kinds, rate, (steps, 3)) + NOISE * random.normal(size=(steps, 3))
        crowd /= blanks[0].std(1, keepdims=True)
        members = [np.flatnonzero(random.random(size) < rate) for _ in range(steps)]
        of_sums = recognise(crowd, kinds.tolist(), blanks, empty, 1050, rate, NOISE)
        of_members = [(f"{each.name} of batches", each) for each in of_batches(members, size)]
        yield [*((each.name, each) for each in of_sums), *of_members]


def test_p_values_are_right_where_hardly_an_example_is_drawn_twice() -> None:
    random, p_values, examples = np.random.default_rng(0), [], 50_000
    for _ in range(1500):
        sizes = random.binomial(examples, 20 / examples, 20)
        batches = [random.choice(examples, size, replace=False) for size in sizes]
        p_values += [hint.p for hint in of_batches(batches, examples) if hint.name == "weights"]
    assert len(p_values) == 1500
    assert np.mean(np.array(p_values) < 0.05) < 0.06
    assert np.mean(np.array(p_values) < 0.002) < 0.004


def more_of(setting: str) -> Plant:
    """A schedule of Opacus; a later noise multiplier was taken for that of all steps."""

    def plant(optimizer: DPOptimizer, rows: int, step: int) -> None:
        if step == 60:
            setattr(optimizer, setting, 2 * getattr(optimizer, setting))

    return plant


@pytest.mark.parametrize(
    ("released", "claims", "says"),
    [
        (lambda x: [x[0]] * 3, {}, "3 steps"),
        (lambda x: [x[0, :4]] * 30, {}, "released"),
        (lambda x: [x[0] * np.nan] * 30, {}, "finite"),
        (lambda x: [x[0]] * 30, {}, "unknown"),
        (lambda x: [x[0]] * 30, {"noise_multiplier": 1.0, "sample_rate": 0.001}, "in a batch"),
        (lambda x: [x[0]] * 30, {"examples": 7}, "examples"),
        (lambda x: [x[0]] * 30, {"noise_multiplier": "1"}, "noise_multiplier: '1' is not allowed"),
        (lambda x: [x[0]] * 30, {"epsilon_claimed": math.nan}, "epsilon_claimed"),
        (lambda x: None, {}, "train: returned NoneType; needed: to yield"),
        (
            lambda x: [torch.optim.SGD(nn.Linear(2, 1).parameters())] * 30,
            {},
            "step 0: SGD; allowed: Opacus's",
        ),
        (lambda x: ["abc"] * 30, {}, "step 0: str that is no array of real numbers"),
        (lambda x: [(x[0], x[0])] * 30, {}, r"step 0: batch of shape \(1500,\); needed: \(B, 1500\)"),
        (lambda x: [cleared(step) for step in training()(x)], {}, "step 0: no gradient"),
        (lambda x: [without_engine(step) for step in training()(x)], {}, "sample_rate: unknown"),
        (
            training(more_of("noise_multiplier")),
            {},
            r"step 60: noise multiplier and clipping bound \(4.0, 1.0",
        ),
        (training(more_of("max_grad_norm")), {}, r"\(2.0, 2.0\), \(2.0, 1.0\) before; allowed: the same"),
    ],
)
def test_what_cannot_be_audited_is_a_line(released: Any, claims: dict[str, Any], says: str) -> None:
    with pytest.raises(dprepro.UserError, match=says):
        audited(released, **claims)


def cleared(optimizer: DPOptimizer) -> DPOptimizer:
    optimizer.zero_grad(set_to_none=True)
    return optimizer


def without_engine(optimizer: DPOptimizer) -> DPOptimizer:
    optimizer.attach_step_hook(lambda stepped: None)
    return optimizer


def test_steps_without_noise_are_seen() -> None:
    audit = audited(lambda x: [x[::20].sum(0)] * 30, noise_multiplier=1.0, sample_rate=0.05)
    assert "without noise" in audit.looks_like[0].looks_like


def test_the_page_runs() -> None:
    scope: dict[str, Any] = {}
    for block in blocks():
        if block.page == "docs/audit-your-training.md":
            exec(block.text, scope)
    assert scope["audit"].verdict == "nothing found"
    assert scope["mistaken"].verdict == "wrong"
    assert [mistake.name for mistake in scope["mistaken"].looks_like] == ["clipping"]


def test_a_rate_that_is_no_whole_batch_is_accounted_for_itself() -> None:
    upper = audited(training(), noise_multiplier=NOISE, sample_rate=0.0504).epsilon_upper
    spent = dprepro.epsilon(examples=10_000, batch=504, noise_multiplier=NOISE, delta=DELTA, steps=STEPS)
    assert upper is not None
    assert spent.epsilon_upper == pytest.approx(upper, rel=1e-6)


def allocated(same: bool = False, fixed: bool = False, coins: bool = False) -> Sampler:
    """Random allocation to 20 batches of an epoch, or a mistake in it."""
    batch_of = np.empty(0, int)

    def sample(random: np.random.Generator, size: int, step: int) -> np.ndarray:
        nonlocal batch_of
        if step == 0 or (step % 20 == 0 and not same):
            batch_of = random.permutation(size) % 20 if fixed else random.integers(20, size=size)
        return random.random(size) < 0.05 if coins else batch_of == step % 20

    return sample


@pytest.mark.parametrize(
    ("claimed", "mistakes", "text"),
    [
        ("allocation", {}, None),
        ("poisson", {}, "an order of the examples, or random allocation"),
        ("allocation", {"same": True}, "epochs whose batches are alike"),
        ("allocation", {"fixed": True}, "a sampler that isn't random allocation"),
        ("allocation", {"coins": True}, "claimed one: no random allocation"),
    ],
)
def test_random_allocation_is_told_from_poisson_samples(
    claimed: Any, mistakes: dict[str, bool], text: str | None
) -> None:
    claims = {"noise_multiplier": NOISE, "sample_rate": 0.05, "sampling": claimed}
    audit = audited(by_hand(sample=allocated(**mistakes), batches=True), **claims)
    hints = [hint for hint in audit.looks_like if hint.name == "sampler"]
    assert len(hints) == len(audit.looks_like)
    assert (not hints) if text is None else any(text in hint.looks_like for hint in hints)
    steps = dprepro.epsilon(
        examples=1000, batch=50, noise_multiplier=NOISE, delta=DELTA, steps=STEPS, sampling=claimed
    )
    assert audit.epsilon_upper == steps.epsilon_upper


@pytest.mark.parametrize(("epoch", "steps", "noise"), [(2, 20, 0.0), (3, 20, 100.0), (20, 100, 0.0)])
def test_sizes_of_allocated_batches_have_small_p_values_as_seldom_as_said(
    epoch: int, steps: int, noise: float
) -> None:
    """A test for Poisson samples gave 7 % of right trainings with two batches p < .01."""
    random, small = np.random.default_rng(0), 0
    for _ in range(1000):
        places = [random.integers(epoch, size=1000) for _ in range(math.ceil(steps / epoch))]
        batches = [np.flatnonzero(place == batch) for place in places for batch in range(epoch)][:steps]
        if noise:
            sums = np.array(list(map(len, batches))) + noise**0.5 * random.normal(size=steps)
            small += _dispersion(sums, 1000 / epoch * (1 - 1 / epoch), noise, epoch)[0] < 0.01
        else:
            small += of_allocation(batches, 1000, epoch)[0].p < 0.01
    assert small <= 20


def test_allocated_batches_of_an_epoch_are_a_whole_number() -> None:
    with pytest.raises(dprepro.UserError, match=r"sample_rate: 0\.06; allowed with 'allocation'"):
        audited(by_hand(sample=allocated()), noise_multiplier=NOISE, sample_rate=0.06, sampling="allocation")
