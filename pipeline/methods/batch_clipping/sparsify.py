"""Fixing weights that have converged (Nguyen et al. 2023, section 3.4, which leaves it untried).

An entry has converged when, over a window of rounds, it hovers around its average no further than the noise
alone would have carried it. It is then fixed to that average. All this looks at released weights only, so it
is post-processing and costs no privacy.
"""

import torch
from torch import Tensor

from pipeline.methods.base import State, each
from pipeline.privacy.gradients import Tensors


def begin(parameters: Tensors) -> State:
    """State of a first window: every entry is trained. Shapes are those of ``parameters``, (R, ...) each."""
    replicas = next(iter(parameters.values()))
    return {
        "active": {name: torch.ones_like(value) for name, value in parameters.items()},
        **_window(parameters, replicas.new_zeros(len(replicas), len(parameters))),
    }


def _window(parameters: Tensors, noise: Tensor) -> State:
    zeros = {name: torch.zeros_like(value) for name, value in parameters.items()}
    return {
        "origin": dict(parameters),
        "moved": zeros,
        "square": {name: torch.zeros_like(value) for name, value in parameters.items()},
        "noise": {"energy": torch.zeros_like(noise)},
    }


def follow(state: State, deviations: Tensor, window: int, window_ends: bool) -> State:
    """State after a round.

    Args:
        state: with the round's parameters in it, frozen entries as they were.
        deviations: (R, T) standard deviation of the noise that the round added to each tensor's entries.
        window: rounds W of a window.
        window_ends: whether this round ends one.
    """
    moved, square = {}, {}
    for name, value in state["parameters"].items():
        displacement = value - state["origin"][name]
        moved[name] = state["moved"][name] + displacement
        square[name] = state["square"][name] + displacement.square()
    energy = state["noise"]["energy"] + deviations.square()
    state = {**state, "moved": moved, "square": square, "noise": {"energy": energy}}
    return _fix_converged(state, window) if window_ends else state


def _fix_converged(state: State, window: int) -> State:
    """The state with converged entries at their averages, and a new window begun.

    A random walk of W steps with variance t^2 each varies by t^2 (W^2 - 1) / (6 W) around its own average.
    """
    parameters, active = {}, {}
    for column, (name, value) in enumerate(state["parameters"].items()):
        average = state["moved"][name] / window
        variance = state["square"][name] / window - average.square()
        walk = state["noise"]["energy"][:, column] * (window**2 - 1) / (6 * window**2)
        trained = state["active"][name] * (variance > each(variance, walk))
        newly_fixed = (state["active"][name] > 0) & (trained == 0)
        parameters[name] = torch.where(newly_fixed, state["origin"][name] + average, value)
        active[name] = trained
    return {
        **state,
        "parameters": parameters,
        "active": active,
        **_window(parameters, state["noise"]["energy"]),
    }
