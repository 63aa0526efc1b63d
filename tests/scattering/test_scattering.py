"""The example's features, by a second computation; its committed ledgers are those of its runs."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from tests.commands import typed
from tests.scattering.conftest import EXAMPLE


def drawn(count: int, channels: int, side: int) -> torch.Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize(
    ("channels", "side", "image", "row", "column"),
    [(1, 28, 0, 3, 2), (3, 32, 2, 0, 7)],
)
def test_it_is_kymatios_in_its_order(channels: int, side: int, image: int, row: int, column: int) -> None:
    """To 2e-4, as kymatio has filters in single precision and 3.1415 for pi.

    `kymatio.json` has the last channel's 81 features of one pixel, by kymatio 0.3.0.
    """
    from lab.scattering import scattering

    ours = scattering(drawn(3, channels, side))
    assert ours.shape == (3, 81 * channels, side // 4, side // 4)
    theirs = json.loads((Path(__file__).parent / "kymatio.json").read_text())[str(side)]
    assert ours[image, -81:, row, column].tolist() == pytest.approx(theirs, rel=2e-4)


ROW = "tramer-mnist-linear"


def test_committed_ledgers_verify_and_a_changed_noise_is_noticed(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "params.yaml", tmp_path)
    for name in ("papers", "lab", "reports"):
        shutil.copytree(EXAMPLE / name, tmp_path / name)
    assert re.search(f"{ROW}: .*ok", typed("dprepro verify", tmp_path))
    # as if the statistics of that row had been released without a trace
    run = tmp_path / f"reports/trainings/{ROW}.jsonl"
    text = run.read_text()
    assert "5.656854" in text
    run.write_text(re.sub(r',"first_release":[^,}]*', "", text))
    for path in tmp_path.glob("reports/*/*.json*"):
        if path.stem != ROW:
            path.unlink()
    assert f"{ROW}: WRONG" in typed("dprepro verify", tmp_path, fails=True)


def test_on_a_clone_dvc_makes_nothing_anew_that_is_committed(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("data", "runs", "*.npz", "cache", "tmp", "__pycache__")
    clone = shutil.copytree(EXAMPLE, tmp_path / "scattering", ignore=ignore)
    subprocess.run(["git", "init", "-q"], cwd=clone, check=True)
    trained = [path.stem for path in sorted(EXAMPLE.glob("reports/trainings/*"))]
    assert trained
    targets = [f"{stage}@{row}" for row in trained for stage in ("evaluate", "ledger", "audit")]
    said = typed(f"dvc repro --allow-missing --dry {' '.join(targets)}", clone)
    assert set(re.findall(r"Running stage '([^']+)'", said)) <= {"identity"}
    assert all(f"Stage 'train@{row}' didn't change" in said for row in trained)
