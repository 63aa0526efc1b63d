"""Weights and records, read back as they were written or refused; git merges them; numbers have ranges."""

import base64
import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dprepro.accountants.records import MACHINE_TOLERANCE
from dprepro.errors import UserError
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.params import Settings, load
from dprepro.pipeline.results import records
from dprepro.pipeline.results.records import errors_of, packed
from dprepro.pipeline.results.schema import Replaced, RowTrainings, TrainingRecord
from dprepro.pipeline.results.weights import read_weights, weights_path, write_weights
from tests.checkout import commit, git
from tests.faults.project import put
from tests.made_records import made_up_training
from tests.not_none import not_none

CPU = torch.device("cpu")
MODEL = {
    "0.weight": torch.randn(3, 2, 5, 5).to(memory_format=torch.channels_last),
    "0.bias": torch.tensor([float("nan"), 1e-42, -0.0]),
    "low": torch.tensor(0.5),
}


def test_what_is_written_is_read_back_bit_by_bit(tmp_path: Path) -> None:
    path = weights_path("row", "epsilon=0.5", 0, tmp_path)
    assert path.name == "epsilon=0.5,seed=0.safetensors"
    said = write_weights(path, MODEL)
    assert digest_file(path) == said
    tensors = read_weights(path, said, CPU)
    assert tensors.keys() == MODEL.keys()
    for name, value in MODEL.items():
        assert torch.equal(tensors[name].view(torch.int32), value.contiguous().view(torch.int32))


@pytest.mark.parametrize("content", [b"\xff" * 20, b""])
def test_no_weights_are_a_line_though_something_vouches_for_them(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(UserError, match="no weights") as problem:
        read_weights(path, digest_file(path), CPU)
    assert "\n" not in str(problem.value)


ROOT = Path(__file__).parents[2]
PUBLISHED: dict[str, list[Any]] = json.loads(Path(__file__).with_name("published_numbers.json").read_text())


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load(ROOT / "params.yaml")


@pytest.mark.parametrize("key", PUBLISHED)
def test_a_published_number_stands(key: str, settings: Settings) -> None:
    record = not_none(records.read(key, settings.lines[key], ROOT))
    trainings = {(training.level, training.seed): training for training in record.trainings}
    for level, seed, accuracy, claimed, epsilon_upper in PUBLISHED[key]:
        training = trainings[level, seed]
        assert training.metrics.get("test_accuracy") == accuracy
        for now, then in ((training.ledger.claimed, claimed), (training.ledger.epsilon_upper, epsilon_upper)):
            assert (now is None) == (then is None)
            assert now is None or then <= now <= then * (1 + MACHINE_TOLERANCE)


ROW = "small"


def training(seed: int, **changes: Any) -> TrainingRecord:
    return made_up_training(None, 1, row=ROW, seed=seed, **changes)


def write(root: Path, *trainings: TrainingRecord, **more: Any) -> None:
    records.write(RowTrainings(row=ROW, trainings=trainings, **more), root)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    curves = {"train_loss": ((1, 0.5, 2.25), (2, 1.0, 1e-9))}
    run = RowTrainings(
        row=ROW,
        trainings=(training(0, curves=curves), training(1, frozen=(0.1,), noise="grid")),
        replaced=(training(0, ended=9.0, replaced=True), Replaced(trainings=3, spent=None)),
    )
    path = records.write(run, tmp_path)
    assert len(path.read_text().splitlines()) == 4
    assert records.read_run(ROW, tmp_path) == run
    assert [*run.replaced_spent()] == 4 * [None]


def test_a_later_training_leaves_the_lines_of_earlier_ones_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, training(0))
    before = records.run_path(ROW, tmp_path).read_text()
    write(tmp_path, *not_none(records.read_run(ROW, tmp_path)).trainings, training(1))
    assert records.run_path(ROW, tmp_path).read_text().startswith(before)


@pytest.mark.parametrize("common", [(), (training(0),)])
def test_git_merges_the_trainings_of_two_machines(tmp_path: Path, common: tuple[TrainingRecord, ...]) -> None:
    git("init", "--quiet", "--initial-branch=here", folder=tmp_path)
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    if common:
        write(tmp_path, *common)
    commit(tmp_path)
    git("checkout", "--quiet", "-b", "there", folder=tmp_path)
    write(tmp_path, *common, training(2), training(3))
    commit(tmp_path)
    git("checkout", "--quiet", "here", folder=tmp_path)
    write(tmp_path, *common, training(1), training(2))  # seed 2 at both: the same one
    commit(tmp_path)
    git("merge", "--quiet", "--no-edit", "there", folder=tmp_path)
    seeds = {each.seed for each in not_none(records.read_run(ROW, tmp_path)).trainings}
    assert seeds == {1, 2, 3} | {each.seed for each in common}


def test_two_trainings_of_one_seed_are_told_until_one_is_a_replaced_one(tmp_path: Path) -> None:
    write(tmp_path, training(0))
    path = records.run_path(ROW, tmp_path)
    first, other = path.read_text(), training(0, ended=9.0)
    write(tmp_path, other)
    both = first + path.read_text()
    path.write_text(both)
    with pytest.raises(UserError, match=r"two trainings of sigma=1, seed 0; allowed: one that is not"):
        records.read_run(ROW, tmp_path)
    path.write_text(first.replace("}\n", ',"replaced":true}\n') + path.read_text()[len(first) :])
    run = not_none(records.read_run(ROW, tmp_path))
    assert (run.trainings, len(run.replaced)) == ((other,), 1)


def test_errors_come_back_and_are_small() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 10, 10_000)
    predicted = np.where(generator.random(10_000) < 0.97, labels, generator.integers(0, 10, 10_000))
    text = str(packed(predicted, labels, 10))
    errors = errors_of(text)
    assert [int(label + error) % 10 for label, error in zip(labels, errors, strict=True)] == [*predicted]
    assert float((errors == 0).mean()) == float((predicted == labels).mean())
    assert len(text) < 1500
    assert len(str(packed(generator.integers(0, 10, 10_000), labels, 10))) < 7000
    assert packed(predicted, labels, 257) is None


@pytest.mark.parametrize(
    "text",
    ["", "A", "AAAA", base64.b64encode(zlib.compress(bytes(10))[:-5]).decode(),
     base64.b64encode(zlib.compress(bytes(10_000_001))).decode()],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not packed errors"):
        errors_of(text)


# compared with params.yaml, or words of a statement
FREE = {"settings", "model", "chosen", "values"}
READERS: dict[str, tuple[str, Callable[[str, Path], object]]] = {
    "trainings": ("davody-t5-lenet5-planned.jsonl", records.read_run),
    "evaluations": ("phan-f4a-adlm-reduced.jsonl", records.read_evaluation),
    "ledgers": ("phan-f4a-adlm-reduced.json", records.read_ledgers),
    "searches": ("davody-t5-lenet5.json", records.read_search),
    "audits": ("davody-t5-lenet5.json", records.read_attacks),
}


def places(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all numbers, one of each kind: of lists the first entry that has it."""
    inner = (
        enumerate(content)
        if isinstance(content, list)
        else content.items()
        if isinstance(content, dict)
        else ()
    )
    for name, value in inner:
        if name not in FREE:
            yield from places(value, (*path, str(name)))
    if isinstance(content, int | float) and not isinstance(content, bool):
        yield path


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("value", [1e308, -1e308, 10**400])
def test_a_number_out_of_its_range_is_refused(tmp_path: Path, kind: str, value: float) -> None:
    name, read = READERS[kind]
    original = (ROOT / "reports" / kind / name).read_text()
    first, *others = original.splitlines() if name.endswith("l") else [original]
    (path := tmp_path / "reports" / kind / name).parent.mkdir(parents=True)
    seen: set[tuple[str, ...]] = set()
    for place in places(json.loads(first)):
        if (generic := tuple(part for part in place if not part.isdigit())) in seen:
            continue
        seen.add(generic)
        content = json.loads(first)
        put(content, "/".join(place), value)
        path.write_text("\n".join([json.dumps(content), *others]))
        taken = True
        try:
            read(path.stem, tmp_path)
        except UserError as problem:
            taken = path.name not in str(problem)
        assert not taken, place
    assert len(seen) > 5


def test_an_evaluation_without_a_test_accuracy_is_refused(tmp_path: Path) -> None:
    name, read = READERS["evaluations"]
    first, *others = (ROOT / "reports" / "evaluations" / name).read_text().splitlines()
    content = json.loads(first)
    del content["metrics"]["test_accuracy"]
    (path := tmp_path / "reports" / "evaluations" / name).parent.mkdir(parents=True)
    path.write_text("\n".join([json.dumps(content), *others]))
    with pytest.raises(UserError, match=r"phan-f4a-adlm-reduced\.jsonl.*metrics: lacks test_accuracy"):
        read(path.stem, tmp_path)
