"""Takes the first steps of rows by the code of one checkout, seeded, and keeps what they made.

Run as a script, with PYTHONPATH naming the checkout. It must work by code of any age, so it imports nothing
of its own package by itself, and holds on to what every version has had: `replicas`, `make_task` and
`build_method` beside the training loop, and a method's `init`, `step`, `network` and `predict`.

    PYTHONPATH=CHECKOUT python first_steps.py JOBS.json

JOBS.json is a list of jobs: {"folder": of a params.yaml with prepared data beside it, "row": there, "steps":
how many to take from the start, "states": null or a file that another checkout wrote, from each of whose
states one step is taken instead, "out": where to write}. What is written, by torch.save: (level, seed) of
every replica there -> {"states": one before and one after every step, "metrics": of every step,
"classes": that the last state predicts}; a state is {"GROUP/NAME": tensor}. A job that fails writes
{"error": why}.
"""

import json
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from typing import Any

import torch

SHARED = "batching_key"  # of a method's settings: what replicas that train together have in common
PREDICTED = 256  # training inputs whose classes are kept


def take(job: dict[str, Any]) -> dict[Any, Any]:
    """What a job's steps made."""
    os.chdir(job["folder"])
    row = _module("pipeline.params", "pipeline.settings").load().rows[job["row"]]
    loop = _module("pipeline.training.loop", "pipeline.training")
    data = import_module("pipeline.data.prepared").load(row.data)
    execution = import_module("pipeline.methods.base").Execution(
        torch.device("cpu"), replicas_at_once=1, physical=256
    )
    begun = torch.load(job["states"], weights_only=True) if job["states"] else None
    wanted = _module("pipeline.training.rows", "pipeline.training.loop", "pipeline.training").replicas(row)
    made: dict[Any, Any] = {}
    for _, together in groupby(sorted(wanted, key=_kind), key=_kind):
        members = list(together)
        task = loop.make_task(members, row.model, True, data, execution)
        settings = [one.settings for one in members]
        method = loop.build_method(row.method, task, settings, row.model.normalization)
        names = [(one.level, one.seed) for one in members]
        starts = None if begun is None else [_stacked(begun, names, place) for place in range(job["steps"])]
        made |= _group(method, task, names, job["steps"], starts)
    return made


def _group(method: Any, task: Any, names: list[Any], steps: int, starts: list[Any] | None) -> dict[Any, Any]:
    state = method.init()
    states, metrics = [state], []
    # groups that hold nothing leave nothing in a file
    empty: dict[str, Any] = {group: {} for group in state}
    for step in range(steps):
        state, found = method.step(state if starts is None else {**empty, **starts[step]}, step)
        states.append(state)
        metrics.append(found)
    # before there was a `network`, nobody could ask for classes this way
    classes = torch.full((len(names), 0), -1)
    if hasattr(method, "network"):
        network = method.network(method.model(state), 0)
        classes = method.predict(network, task.inputs[:PREDICTED])
    return {
        name: {
            "states": [_own(one, index) for one in states],
            "metrics": [{key: value[index].clone() for key, value in one.items()} for one in metrics],
            "classes": classes[index].clone(),
        }
        for index, name in enumerate(names)
    }


def _own(state: Any, index: int) -> dict[str, torch.Tensor]:
    """One replica's tensors."""
    return {
        f"{group}/{name}": value[index].clone()
        for group, tensors in state.items()
        for name, value in tensors.items()
    }


def _stacked(begun: dict[Any, Any], names: list[Any], place: int) -> dict[str, dict[str, torch.Tensor]]:
    """The states of several replicas after ``place`` steps, as one."""
    state: dict[str, dict[str, torch.Tensor]] = {}
    for key in begun[names[0]]["states"][place]:
        group, _, name = key.partition("/")
        parts = [begun[one]["states"][place][key] for one in names]
        state.setdefault(group, {})[name] = torch.stack(parts)
    return state


def _kind(replica: Any) -> str:
    """Of replicas that share a step."""
    own = replica.settings
    return repr(getattr(own, SHARED, None) or getattr(own, "together", None) or (own.batch, own.private))


def _module(*names: str) -> Any:
    """The first of the modules that this version has."""
    for name in names:
        try:
            if find_spec(name) is not None:
                return import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(names[-1])


def main(path: str) -> None:
    """Do all jobs of a file."""
    with open(path, encoding="utf-8") as file:
        jobs = json.load(file)
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    for job in jobs:
        try:
            with torch.no_grad():
                made = take(job)
        except Exception as problem:  # whatever a version of any age may do, the other jobs go on
            made = {"error": f"{type(problem).__name__}: {problem}"}
        torch.save(made, job["out"])


if __name__ == "__main__":
    main(sys.argv[1])
