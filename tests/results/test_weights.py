"""Weights as safetensors, and those of torch from before, which records in git vouch for."""

from pathlib import Path

import pytest
import torch

from pipeline.errors import UserError
from pipeline.files import digest_file
from pipeline.results.weights import (
    clear_weights,
    existing_weights,
    read_weights,
    weights_path,
    write_weights,
)

CPU = torch.device("cpu")
MODEL = {
    "0.weight": torch.randn(3, 2, 5, 5).to(memory_format=torch.channels_last),
    "0.bias": torch.tensor([float("nan"), 1e-42, -0.0]),
    "low": torch.tensor(0.5),
}


def earlier(root: Path) -> Path:
    """A replica's file as it was written before."""
    path = weights_path("row", "epsilon=0.5", 0, root).with_suffix(".pt")
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(MODEL, path)
    return path


@pytest.mark.parametrize("ending", [".safetensors", ".pt"])
def test_what_is_written_is_read_back_bit_by_bit(tmp_path: Path, ending: str) -> None:
    if ending == ".pt":
        said = digest_file(earlier(tmp_path))
    else:
        said = write_weights(weights_path("row", "epsilon=0.5", 0, tmp_path), MODEL)
    path = existing_weights("row", "epsilon=0.5", 0, tmp_path)
    assert path.name == f"epsilon=0.5,seed=0{ending}"
    assert digest_file(path) == said
    tensors = read_weights(path, said, CPU)
    assert tensors.keys() == MODEL.keys()
    for name, value in MODEL.items():
        assert torch.equal(tensors[name].view(torch.int32), value.contiguous().view(torch.int32))


def test_views_of_all_replicas_are_kept_one_by_one(tmp_path: Path) -> None:
    every = torch.arange(12.0).reshape(3, 4)
    path = weights_path("row", "epsilon=1", 0, tmp_path)
    said = write_weights(path, {"first": every[0], "same": every[0], "across": every[:, 1]})
    assert path.stat().st_size < 400
    assert read_weights(path, said, CPU)["across"].tolist() == [1, 5, 9]


def test_what_was_trained_anew_replaces_the_earlier_file(tmp_path: Path) -> None:
    before = earlier(tmp_path)
    write_weights(weights_path("row", "epsilon=0.5", 0, tmp_path), MODEL)
    path = existing_weights("row", "epsilon=0.5", 0, tmp_path)
    assert path.suffix == ".safetensors"
    clear_weights("row", {path}, tmp_path)
    assert not before.exists()
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.safetensors", b"\xff" * 20), ("a.safetensors", b""), ("a.pt", b"no"), ("a.pt", None)],
)
def test_no_weights_are_a_line_though_something_vouches_for_them(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    path = tmp_path / name
    torch.save([1.0], path) if content is None else path.write_bytes(content)
    with pytest.raises(UserError, match="no weights") as problem:
        read_weights(path, digest_file(path), CPU)
    assert "\n" not in str(problem.value)
