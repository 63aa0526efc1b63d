"""Which weights are fixed: those that noise alone may have moved."""

import torch

from pipeline.methods.base import State
from pipeline.methods.batch_clipping import sparsify

ROUNDS, ENTRIES = 40, 4000


def walked(drift: float, deviation: float = 0.1, pull: float = 0.0, windows: int = 1) -> State:
    """A window of a random walk from 5 on, with a drift each round or a pull back to 5."""
    generator = torch.Generator().manual_seed(0)
    state: State = {"parameters": {"w": torch.full((1, ENTRIES), 5.0)}}
    state |= sparsify.begin(state["parameters"])
    for step in range(windows * ROUNDS):
        now = state["parameters"]["w"]
        move = drift + pull * (5 - now) + deviation * torch.randn(now.shape, generator=generator)
        state = {**state, "parameters": {"w": now + move * state["active"]["w"]}}
        noise = torch.full((1, 1), deviation)
        state = sparsify.follow(state, noise, ROUNDS, window_ends=(step + 1) % ROUNDS == 0)
    return state


def still_trained(state: State) -> float:
    return state["active"]["w"].mean().item()


def test_a_weight_with_a_direction_goes_on() -> None:
    assert still_trained(walked(drift=0.1)) > 0.95


def test_weights_that_noise_alone_moves_are_fixed_more_often_than_not() -> None:
    assert 0.2 < still_trained(walked(drift=0.0)) < 0.5
    assert still_trained(walked(drift=0.0, pull=0.5)) == 0  # at a minimum, held there


def test_the_walk_varies_around_its_average_as_the_formula_says() -> None:
    steps = 0.1 * torch.randn(ENTRIES, ROUNDS, generator=torch.Generator().manual_seed(1))
    measured = steps.cumsum(1).var(1, correction=0).mean().item()
    assert abs(measured / (0.01 * (ROUNDS**2 - 1) / (6 * ROUNDS)) - 1) < 0.05


def test_fixed_weights_stand_at_their_average_for_good() -> None:
    once, twice = walked(drift=0.0), walked(drift=0.0, windows=2)
    fixed = once["active"]["w"] == 0
    assert fixed.any()
    assert torch.equal(once["parameters"]["w"][fixed], twice["parameters"]["w"][fixed])
    assert (twice["active"]["w"][fixed] == 0).all()
    # an average of a walk, not its end: it lies closer to where the window began
    spread = (once["parameters"]["w"] - 5).std()
    assert once["parameters"]["w"][fixed].sub(5).std() < spread
