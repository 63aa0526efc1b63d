"""A small project with one of everything that is read back: what faults are done to."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dprepro.pipeline import params
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.fetch import fetch
from dprepro.pipeline.data.prepare import prepare
from dprepro.pipeline.ledgers.rows import account, row_ledgers
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.params import Settings
from dprepro.pipeline.training import evaluation, rows
from dprepro.pipeline.training import search as searches
from dprepro.pipeline.training.checkpoints import Checkpoint
from dprepro.pipeline.transport.archive import pack

ROW = "small"
PARAMS = """
source: {kind: synthetic}
raw:
  mnist: {train: 130, test: 20}
  kmnist: {train: 20, test: 5}
data:
  mnist: {raw: mnist, train: 110, validation: 20, public: {raw: kmnist, count: 4}}
rows:
  small:
    paper: davody2020
    table: t5
    label: DPSGD (LN-LeNet-5)
    data: mnist
    model: {name: lenet5, normalization: layer}
    method: dpsgd
    seeds: 1
    reproducible: true
    settings: {batch: 32, epochs: 1, learning_rate: 0.5, delta: 0.001}
    levels: [{epsilon: 3}]
searches:
  quick: {row: small, grid: {learning_rate: [0.25, 0.5]}}
accounts:
  counted:
    paper: davody2020
    table: t5
    label: DPSGD
    settings: {examples: 60000, batch: 256, epochs: 1, delta: 1.0e-5, noise_multiplier: 1.1}
    levels: [{noise_multiplier: 1.1}]
"""
CPU = Execution(torch.device("cpu"), physical=64)
MINE = Path("mine.npz")
PACK = Path("small.dprepro.tar.gz")
CHECKPOINT = Path("kept.pt")


def settings() -> Settings:
    return params.load(Path("params.yaml"))


def make() -> None:
    """Make the project in the current folder: from raw files to a pack, and a checkpoint."""
    Path("params.yaml").write_text(PARAMS)
    declared = settings()
    for name in declared.raw:
        fetch(name, declared)
    prepare("mnist", declared)
    train()
    evaluate()
    search()
    row_ledgers(ROW, declared)
    account("counted", declared)
    pack(declared, [ROW], PACK)
    images = np.random.default_rng(0).integers(0, 256, (120, 28, 28), dtype=np.uint8)
    np.savez(MINE, inputs=images, labels=np.arange(120) % 4)
    Checkpoint({"parameters": {"w": torch.ones(1, 40)}}, 3, [("a", 0, 1)], 1.0, 2.0).save(CHECKPOINT)


def search() -> None:
    searches.search("quick", settings(), prepared.load("mnist"), CPU, lambda _: None)


def train() -> None:
    rows.train(ROW, settings(), prepared.load("mnist"), CPU, lambda _: None, 0.0)


def evaluate() -> None:
    evaluation.evaluate(ROW, settings(), prepared.load("mnist"), CPU)


def put(content: Any, place: str, value: Any) -> None:
    """Set what is at a place such as 'trainings/0/seed'; ... removes it, and a function is applied to it."""
    *parents, last = (int(name) if name.isdigit() else name for name in place.split("/"))
    for name in parents:
        content = content[name]
    if value is ...:
        del content[last]
    else:
        content[last] = value(content[last]) if callable(value) else value


def edit(path: Path, place: str, value: Any) -> None:
    """Change a JSON file, or lines of 'trainings', as somebody with an editor would."""
    path.write_text(edited(path.name, path.read_text(), place, value))


def edited(name: str, text: str, place: str, value: Any) -> str:
    """``text`` of the file ``name`` with a change."""
    if not name.endswith(".jsonl"):
        content = json.loads(text)
        put(content, place, value)
        return json.dumps(content)
    content = {"trainings": [json.loads(line) for line in text.splitlines()]}
    put(content, place, value)
    return "".join(f"{json.dumps(line)}\n" for line in content["trainings"])
