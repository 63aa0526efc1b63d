"""Private gradients in other people's loops, in several processes, with schedules, and after compilation."""

import os
import re
import socket
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from opacus.accountants import RDPAccountant
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import dprepro
from dprepro.noise.mechanisms import COMPUTING, FINENESS
from dprepro.noise.streams import Streams
from tests.docs.blocks import blocks
from tests.privacy.corpus import alone

CLIP, SIGMA = 0.5, 2.0
SEEDED = torch.Generator().manual_seed(0)
INPUTS, LABELS = torch.rand(300, 20, generator=SEEDED), torch.randint(3, (300,), generator=SEEDED)
DATA = TensorDataset(INPUTS, LABELS)
PAGE = [block.text for block in blocks("docs/library.md") if block.language == "python"]


def network(width: int = 16) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, width), nn.Tanh(), nn.Linear(width, 3))


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(streams: Streams, step: int, size: int, bits: int) -> Tensor:
        return torch.zeros(size, dtype=torch.float64)

    monkeypatch.setattr(Streams, "rounded_normal", zeros)


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("batch", [1, 40])
def test_gradients_are_the_sum_of_single_clipped_gradients_divided_by_the_expected_size(batch: int) -> None:
    net, sampler = network(), dprepro.PoissonSampler(300, batch, 8)
    private_backward = dprepro.PrivateBackward(net, sampler, CLIP, SIGMA)
    sizes = []
    for inputs, labels in dprepro.loader(DATA, sampler):
        expected = alone(net, inputs, labels, CLIP)[1] if len(labels) else {}
        private_backward(inputs, labels)
        for name, parameter in net.named_parameters():
            total = expected.get(name, 0) / batch
            assert (parameter.grad - total).norm() < CLIP * (COMPUTING + FINENESS) / batch
        sizes.append(len(labels))
    assert len(set(sizes)) > 1
    assert private_backward.history == [(SIGMA, batch / 300, 8)]


def test_a_batch_that_is_not_the_drawn_sample_is_refused() -> None:
    sampler = dprepro.PoissonSampler(300, 40, 4)
    private_backward = dprepro.PrivateBackward(network(), sampler, CLIP, SIGMA)
    with pytest.raises(dprepro.UserError, match="batch: 50 examples, and no sample is left"):
        private_backward(INPUTS[:50], LABELS[:50])
    first, second, *_ = dprepro.loader(DATA, sampler)
    size = len(first[1])
    with pytest.raises(
        dprepro.UserError, match=f"batch: {size + 1} examples, and the drawn sample has {size}"
    ):
        private_backward(*(torch.cat([values, values[:1]]) for values in first))
    shuffled = dprepro.PrivateBackward(network(), dprepro.PoissonSampler(300, 40, 4), CLIP, SIGMA)
    for inputs, labels in DataLoader(DATA, batch_size=40, shuffle=True):
        with pytest.raises(dprepro.UserError, match="needed: a step on every sample of the sampler"):
            shuffled(inputs, labels)
    private_backward(*second)  # the refused batch's sample is gone
    assert private_backward.history == [(SIGMA, 40 / 300, 1)]
    with pytest.raises(
        dprepro.UserError, match="2 samples of the last pass had no step; needed: a step on every"
    ):
        next(iter(dprepro.loader(DATA, sampler)))
    private_backward.sampler = dprepro.PoissonSampler(300, 40, 4)
    for _ in range(2):
        for values in dprepro.loader(DATA, private_backward.sampler):
            private_backward(*values)


def test_gradients_without_noise_are_refused_from_then_on() -> None:
    net, sampler = network(), dprepro.PoissonSampler(300, 40, 1)
    private_backward = dprepro.PrivateBackward(net, sampler, CLIP, SIGMA)
    for inputs, labels in dprepro.loader(DATA, sampler):
        private_backward(inputs, labels)
        with pytest.raises(dprepro.UserError, match="its gradients have no noise"):
            F.cross_entropy(net(inputs), labels).backward()
    assert any(parameter.grad is None for parameter in net.parameters())


def test_a_schedule_of_noise_and_opacus_history_compose_like_trainings() -> None:
    net, sampler = network(), dprepro.PoissonSampler(300, 30, 6)
    private_backward = dprepro.PrivateBackward(net, sampler, CLIP, SIGMA)
    opacus, trainings = RDPAccountant(), []
    for (inputs, labels), noise in zip(dprepro.loader(DATA, sampler), [4.0] * 3 + [3.0] * 3, strict=True):
        private_backward.noise_multiplier = noise
        private_backward(inputs, labels)
        opacus.step(noise_multiplier=noise, sample_rate=30 / 300)
    assert private_backward.history == opacus.history == [(4.0, 0.1, 3), (3.0, 0.1, 3)]
    for noise in (4.0, 3.0):
        options: dict[str, Any] = {"examples": 300, "batch": 30, "steps": 3, "delta": 1e-5}
        trainings.append(dprepro.epsilon(**options, noise_multiplier=noise))
    expected = dprepro.compose(trainings)
    assert dprepro.compose(opacus.history, delta=1e-5) == expected
    assert dprepro.compose([trainings[0], opacus.history[1]]) == expected
    assert expected.epsilon_upper < opacus.get_epsilon(1e-5)
    # a rate that no fraction of small numbers has is rounded up
    uneven = dprepro.compose([(4.0, 1 / 3**0.5, 3)], delta=1e-5).epsilon_upper
    assert uneven == pytest.approx(
        dprepro.compose([(4.0, 0.5773502692, 3)], delta=1e-5).epsilon_upper, rel=1e-5
    )
    assert dprepro.compose([(4.0, 1.0, 3)], delta=1e-5).epsilon_upper > uneven


@pytest.mark.parametrize(
    ("history", "delta", "says"),
    [
        ([(4.0, 0.1, 3)], None, "delta: missing; needed for steps"),
        ([(4.0, 1.1, 3)], 1e-5, "1.1 is not allowed"),
        ([(0.0, 0.1, 3)], 1e-5, "0.0 is not allowed"),
        ([(4.0, 0.1, 0)], 1e-5, "0 is not allowed"),
    ],
)
def test_a_history_that_spends_nothing_known_is_a_line(history: Any, delta: Any, says: str) -> None:
    with pytest.raises(dprepro.UserError, match=says):
        dprepro.compose(history, delta=delta)


@pytest.mark.parametrize("compiled", ["network", "in place", "a layer"])
def test_a_compiled_network_has_the_sums_of_the_network(compiled: str) -> None:
    net: Any = network()
    options: dict[str, Any] = {"backend": "eager"}
    if compiled == "network":
        net = torch.compile(net, **options)
    elif compiled == "in place":
        net.compile(**options)
    else:
        net[0] = torch.compile(net[0], **options)
    outputs = net(INPUTS[:5])
    expected = dprepro.clipped_sum(network(), INPUTS[:5], LABELS[:5], CLIP)
    actual = dprepro.clipped_sum(net, INPUTS[:5], LABELS[:5], CLIP)
    for (name, value), other in zip(actual.sums.items(), expected.sums.values(), strict=True):
        torch.testing.assert_close(value, other)
        assert net.get_parameter(name).shape == value.shape
    assert dprepro.noisy_sum(net, INPUTS[:5], LABELS[:5], CLIP, SIGMA).keys() == actual.sums.keys()
    torch.testing.assert_close(net(INPUTS[:5]), outputs)


def join(rank: int, place: str) -> None:
    """Make this process one of two."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{place}/join", rank=rank, world_size=2)


def of_rank(rank: int, place: str) -> None:
    """Save the releases of one of two processes, and what their sum is without noise."""
    join(rank, place)
    group, net, own = distributed.group.WORLD, network(100), slice(rank, None, 2)
    inputs, labels = INPUTS[own], LABELS[own]
    noisy = [dprepro.noisy_sum(net, inputs, labels, CLIP, SIGMA, group=group) for _ in range(20)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Streams, "rounded_normal", lambda _, step, size, bits: torch.zeros(size).double())
        # the whole sample, without the last example of the second process, and without its examples
        parts = [slice(None), slice(-rank or None), slice(0 if rank else None)]
        exact = [
            dprepro.noisy_sum(net, inputs[part], labels[part], CLIP, SIGMA, group=group) for part in parts
        ]
    sampler = dprepro.PoissonSampler(300, 40, 6, rank=rank, ranks=2)
    private_backward, seen = dprepro.PrivateBackward(net, sampler, CLIP, SIGMA), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for places, classes in dprepro.loader(TensorDataset(torch.arange(300), LABELS), sampler):
        seen.append(places)
        private_backward(INPUTS[places], classes)
        optimizer.step()
    problems = []
    for clip, noise in ((CLIP + rank, SIGMA), (CLIP, SIGMA + rank)):
        try:
            dprepro.noisy_sum(net, inputs, labels, clip, noise, group=group)
        except dprepro.UserError as problem:
            problems.append(str(problem))
    try:
        dprepro.PrivateBackward(net, dprepro.PoissonSampler(300, 40, 6), CLIP, SIGMA)
    except dprepro.UserError as problem:
        problems.append(str(problem))
    weights = dict(net.state_dict())
    torch.save((noisy, exact, seen, weights, private_backward.history, problems), f"{place}/{rank}.pt")
    distributed.destroy_process_group()


def test_two_processes_release_the_joint_sum_with_noise_once(tmp_path: Path) -> None:
    multiprocessing.start_processes(of_rank, (str(tmp_path),), nprocs=2, start_method="fork")
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    exact = dprepro.clipped_sum(network(100).double(), INPUTS.double(), LABELS, CLIP).sums
    noise = []
    for ours, theirs in zip(first[0], second[0], strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in exact)
        noise.append(torch.cat([(ours[name] - exact[name]).flatten() for name in exact]) / (CLIP * SIGMA))
    drawn = torch.stack(noise).numpy()
    # once: twice would be 1.41; and no process's noise is the other's
    assert 1 - 7 / (2 * drawn.size) ** 0.5 < drawn.std() < 1.005 + 7 / (2 * drawn.size) ** 0.5
    assert abs(drawn.mean()) < 7 / drawn.size**0.5
    assert np.abs(np.corrcoef(drawn) - np.eye(len(drawn))).max() < 7 / drawn.shape[1] ** 0.5
    # without noise, it is the sum that one process has of the joint batch
    joined = [
        torch.cat([values[name].flatten() for name in exact]) for values in (exact, *first[1], *second[1])
    ]
    of_one, *of_two = joined
    assert (of_one - of_two[0]).norm() < CLIP * (COMPUTING / 2 + FINENESS)
    assert all(torch.equal(*pair) for pair in zip(of_two[:3], of_two[3:], strict=True))
    assert 0.5 * CLIP < (of_two[0] - of_two[1]).norm() <= CLIP * (1 + COMPUTING + FINENESS)
    half = dprepro.clipped_sum(network(100).double(), INPUTS[::2].double(), LABELS[::2], CLIP).sums
    half_sum = torch.cat([half[name].flatten() for name in exact])
    assert (half_sum - of_two[2]).norm() < CLIP * (COMPUTING / 2 + FINENESS)
    for ours, theirs in zip(first[2], second[2], strict=True):
        assert not {*ours.tolist()} & {*theirs.tolist()}
        assert {*(ours % 2).tolist()} <= {0}
        assert {*(theirs % 2).tolist()} <= {1}
    assert sum(len(places) for places in first[2] + second[2]) == pytest.approx(240, abs=7 * 240**0.5)
    assert all(torch.equal(first[3][name], second[3][name]) for name in first[3])
    assert first[4] == second[4] == [(SIGMA, 40 / 300, 6)]
    for rank, (other_clip, other_noise, single) in enumerate((first[5], second[5])):
        assert "group: processes with other clip, noise_multiplier" in other_clip
        assert "group: processes with other clip, noise_multiplier" in other_noise
        assert single == f"sampler: rank 0 of 1, the process: rank {rank} of 2; needed: the same"


@pytest.mark.parametrize("package", ["lightning", "accelerate", "transformers"])
def test_the_loops_of_the_page_run_and_keep_empty_samples(
    package: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = (text for text in PAGE if f"import {package}" in text or f"from {package} import" in text)
    private_steps = {"lightning": 40}.get(package, 10 if package == "transformers" else 20)
    for text in (block, re.sub(r"batch=\d+", "batch=1", block)):
        values: dict[str, Any] = {}
        exec(text, values)
        private = values["private"].private_backward if package == "lightning" else values["private_backward"]
        assert private.steps == {2.0: private_steps}
        epsilon = dprepro.compose(private.history, delta=1e-5).epsilon_upper
        assert f"{epsilon}\n" in capsys.readouterr().out


def of_page(rank: int, script: str, port: int, place: str) -> None:
    """Run a script of the page as one of two processes of `torchrun`, with what it prints in a file."""
    torch.set_num_threads(1)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}", "WORLD_SIZE": "2", "RANK": f"{rank}"}
    os.environ.update(address)
    with open(f"{place}/{rank}.txt", "w", encoding="utf-8") as file, redirect_stdout(file):
        exec(script, {})


def test_the_page_runs_in_two_processes(tmp_path: Path) -> None:
    (script,) = (text for text in PAGE if "init_process_group" in text)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    multiprocessing.start_processes(of_page, (script, port, str(tmp_path)), nprocs=2, start_method="fork")
    printed = [(tmp_path / f"{rank}.txt").read_text() for rank in (0, 1)]
    assert printed == ["[(2.0, 0.1, 20)]\n"] * 2


def test_the_page_says_the_epsilon_of_an_opacus_history(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = (text for text in PAGE if "PRVAccountant" in text)
    exec(block, {})
    said = re.findall(r"upper bound; (\d\.\d+)", block)
    assert said == [f"{float(capsys.readouterr().out):.4f}"]


def test_a_history_has_the_noise_of_each_step_though_a_tensor_changes() -> None:
    sampler, noise = dprepro.PoissonSampler(300, 40, 4), torch.tensor(1.0)
    private_backward = dprepro.PrivateBackward(network(), sampler, CLIP, SIGMA)
    private_backward.noise_multiplier = noise  # type: ignore[assignment]
    for inputs, labels in dprepro.loader(DATA, sampler):
        private_backward(inputs, labels)
        noise *= 2
    assert private_backward.history == [(2.0**step, 40 / 300, 1) for step in range(4)]


def test_another_sampling_rate_is_refused_because_a_history_has_one() -> None:
    sampler = dprepro.PoissonSampler(300, 40, 2)
    private_backward = dprepro.PrivateBackward(network(), sampler, CLIP, SIGMA)
    for place in sampler:
        private_backward(INPUTS[place], LABELS[place])
    private_backward.sampler = dprepro.PoissonSampler(300, 1, 2)
    place = next(iter(private_backward.sampler))
    with pytest.raises(dprepro.UserError, match="at the start 0"):
        private_backward(INPUTS[place], LABELS[place])
    assert private_backward.history == [(SIGMA, 40 / 300, 2)]


def test_backward_is_refused_for_layers_that_were_frozen_at_first() -> None:
    net, sampler = network(), dprepro.PoissonSampler(300, 40, 2)
    net[0].requires_grad_(False)
    private_backward = dprepro.PrivateBackward(net, sampler, CLIP, SIGMA)
    net[0].requires_grad_(True)
    net[2].requires_grad_(False)
    place = next(iter(sampler))
    private_backward(INPUTS[place], LABELS[place])
    for _ in range(2):
        with pytest.raises(dprepro.UserError, match="its gradients have no noise"):
            F.cross_entropy(net(INPUTS), LABELS).backward()
        assert net[0].bias.grad is None
