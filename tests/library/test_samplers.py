"""Poisson samples and random allocation for torch's `DataLoader`, and the page that recommends the latter."""

import os
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import dprepro
from dprepro.accountants.records import batches_of_epoch
from tests.docs.blocks import blocks


def test_the_page_runs_and_its_numbers_are_these() -> None:
    (block,) = (block for block in blocks("docs/shuffling.md") if block.language == "python")
    values: dict[str, Any] = {}
    exec(block.text, values)
    spent = values["spent"]
    assert f"{spent.epsilon_upper} {spent.epsilon_lower}" in block.text
    assert values["optimizer"].expected_batch_size == 100
    assert isinstance(values["loader"].batch_sampler, dprepro.BallsAndBinsSampler)


@pytest.mark.parametrize("participations", [1, 3])
def test_an_example_is_in_its_batches_of_an_epoch_and_in_others_in_the_next(participations: int) -> None:
    sampler = dprepro.BallsAndBinsSampler(2000, 8, participations)
    loader = DataLoader(TensorDataset(torch.arange(2000)), batch_sampler=sampler)
    chosen = np.zeros((2, 8, 2000))
    for epoch in chosen:
        for number, (rows,) in enumerate(loader):
            epoch[number, rows.numpy()] = 1
    assert len(loader) == 8
    assert (chosen.sum(1) == participations).all()
    rate = participations / 8
    sizes = chosen.sum(2)
    assert np.abs(sizes / 2000 - rate).max() < 7 * (rate * (1 - rate) / 2000) ** 0.5
    assert len(np.unique(sizes)) > 1
    overlap = (chosen[0] * chosen[1]).sum(0).mean()
    assert overlap == pytest.approx(8 * rate**2, abs=0.1)


def test_each_example_is_in_a_poisson_sample_with_the_rate() -> None:
    sampler = dprepro.PoissonSampler(200, 10, 2000)
    loader = DataLoader(TensorDataset(torch.arange(200)), sampler=sampler, batch_size=None)
    chosen = np.zeros((2000, 200))
    for sample, (rows,) in zip(chosen, loader, strict=True):
        assert (np.diff(rows.numpy()) > 0).all()  # in order
        sample[rows.numpy()] = 1
    assert len(loader) == 2000
    deviation = 0.05 * 0.95
    assert np.abs(chosen.mean(0) - 0.05).max() < 8 * (deviation / 2000) ** 0.5
    assert chosen.mean() == pytest.approx(0.05, abs=7 * (deviation / chosen.size) ** 0.5)
    again = np.stack([np.isin(np.arange(200), rows) for rows in sampler])
    assert not np.array_equal(chosen, again)


class Images(Dataset[Any]):
    """One example at a position, as of torchvision."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, place: int) -> Any:
        if not isinstance(place, int):
            raise TypeError(f"position {place!r}")
        return {"image": torch.full((2, 2), float(place)), "label": place, "name": f"image {place}"}


@pytest.mark.parametrize("workers", [0, 1])
def test_the_loader_takes_any_data_set_and_keeps_empty_samples(workers: int) -> None:
    batches = list(dprepro.loader(Images(), dprepro.PoissonSampler(30, 1, 40), num_workers=workers))
    assert len(batches) == 40
    assert {0, 1} <= {len(batch["label"]) for batch in batches}
    for batch in batches:
        size = len(batch["label"])
        assert batch["image"].shape == (size, 2, 2)
        assert batch["label"].dtype == torch.int64
        assert batch["name"] == [f"image {place}" for place in batch["label"].tolist()]


def test_an_empty_sample_has_the_shapes_of_the_users_own_batches() -> None:
    def collate(examples: list[Any]) -> Any:
        return torch.stack([x["image"] for x in examples]), [{"place": torch.ones(len(examples), 3)}]

    loader = dprepro.loader(Images(), dprepro.PoissonSampler(30, 1, 40), collate)
    images, ((empty),) = next(batch for batch in loader if not len(batch[0]))
    assert (images.shape, empty["place"].shape) == ((0, 2, 2), (0, 3))


def test_a_loader_of_other_data_is_refused() -> None:
    with pytest.raises(dprepro.UserError, match="data: 30 examples; the sampler has 31"):
        dprepro.loader(Images(), dprepro.PoissonSampler(31, 1, 1))


def test_an_allocated_epoch_continues_in_a_new_process_where_it_stopped() -> None:
    sampler = dprepro.BallsAndBinsSampler(500, 10)
    begun = iter(sampler)
    first, state = [next(begun) for _ in range(4)], sampler.state_dict()
    resumed = dprepro.BallsAndBinsSampler(500, 10)
    resumed.load_state_dict(state)
    last = list(resumed)
    assert last == list(begun)
    assert sorted(place for batch in first + last for place in batch) == list(range(500))
    assert len(list(resumed)) == 10  # the next epoch is whole, and another one
    assert list(resumed)[4:] != last


def test_a_poisson_pass_continues_with_the_missing_number_of_new_samples() -> None:
    sampler = dprepro.PoissonSampler(500, 100, 10)
    begun = iter(sampler)
    for _ in range(7):
        next(begun)
    state, resumed = sampler.state_dict(), dprepro.PoissonSampler(500, 100, 10)
    resumed.load_state_dict(state)
    last = list(resumed)
    assert len(last) == 3
    assert last != list(begun)
    with pytest.raises(dprepro.UserError, match="allowed: 'drawn', 0 to 10, and 'key'"):
        resumed.load_state_dict({**state, "drawn": 11})


@pytest.mark.parametrize("make", [dprepro.BallsAndBinsSampler, dprepro.PoissonSampler])
def test_the_processes_of_a_training_share_the_examples(make: Any) -> None:
    """Each example is drawn by one process, with the rate of a training in one process."""
    counts = np.zeros((3, 100))
    for rank in range(3):
        sampler = make(100, 10, 1, rank=rank, ranks=3) if make is dprepro.BallsAndBinsSampler else None
        sampler = sampler or make(100, 10, 1000, rank=rank, ranks=3)
        sampler.set_epoch(1)
        for sample in sampler:
            counts[rank, sample] += 1
    owners = np.arange(100) % 3
    assert (counts[owners, np.arange(100)] > 0).all()
    assert counts.sum() == counts[owners, np.arange(100)].sum()
    if make is dprepro.BallsAndBinsSampler:
        assert (counts.sum(0) == 1).all()
    else:
        assert counts.sum() == pytest.approx(10_000, abs=7 * 9000**0.5)
    with pytest.raises(dprepro.UserError, match="rank: 3; allowed: 0 to 2"):
        make(100, 10, 1, rank=3, ranks=3)


@pytest.mark.parametrize("make", [dprepro.BallsAndBinsSampler, dprepro.PoissonSampler])
def test_two_samplers_and_a_copy_draw_other_batches(make: Any) -> None:
    sampler = make(100, 40, 2)
    first, *others = (list(each) for each in (sampler, deepcopy(sampler), make(100, 40, 2)))
    assert first not in others


@pytest.mark.parametrize("make", [dprepro.BallsAndBinsSampler, dprepro.PoissonSampler])
def test_a_copy_in_another_process_is_refused(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a distributed training an example would be in the batches of every process."""
    sampler = make(1000, 40, 1)  # no batch is empty, which a loader can't collate
    workers = DataLoader(TensorDataset(torch.arange(1000)), batch_sampler=sampler, num_workers=1)
    assert len(list(workers)) == len(sampler)
    begun = iter(sampler)
    next(begun)
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    for samples in (iter(sampler), begun):
        with pytest.raises(dprepro.UserError, match="made in another process"):
            next(samples)


@pytest.mark.parametrize(
    ("make", "numbers"),
    [
        *((dprepro.BallsAndBinsSampler, numbers) for numbers in ((0, 1), (10, 0), (10, 4, 5), (10, 2.5))),
        *((dprepro.PoissonSampler, (10, *numbers)) for numbers in ((0, 1), (11, 1), (2.5, 1), (1, 0))),
    ],
)
def test_numbers_that_do_not_fit_are_refused(make: Any, numbers: Any) -> None:
    with pytest.raises(dprepro.UserError, match=r"examples|batch|participations|steps"):
        make(*numbers)


def test_an_expected_batch_size_rounded_up_is_for_no_more_batches_than_the_sampler_has() -> None:
    for examples in (7, 100, 999, 1000):
        for participations in (1, 2, 3):
            for batches in range(participations, examples + 1):
                batch = min(examples, -(-participations * examples // batches))
                assert batches_of_epoch(examples, batch, participations) <= batches


def test_epsilon_at_an_expected_batch_size_rounded_up_is_a_bound_for_the_sampler() -> None:
    """600 batches have 1 2/3 of 1,000 examples each."""
    settings: dict[str, Any] = {"noise_multiplier": 0.7, "delta": 1e-6, "epochs": 1, "sampling": "allocation"}
    lower = dprepro.epsilon(examples=600, batch=1, **settings).epsilon_lower  # exactly 600 batches
    assert dprepro.epsilon(examples=1000, batch=2, **settings).epsilon_upper > lower
    # rounded down it would be for 1,000 batches
    assert dprepro.epsilon(examples=1000, batch=1, **settings).epsilon_upper < lower
