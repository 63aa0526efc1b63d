"""What Phan et al.'s noisy images still tell: why more epochs can't bring the printed number."""

import os
from pathlib import Path

import numpy as np
import pytest

from dprepro.pipeline import params
from dprepro.pipeline.data import formats
from dprepro.pipeline.data.fetch import fetch
from dprepro.pipeline.methods.laplace.settings import IlmSettings
from dprepro.pipeline.methods.spending import NetworkSizes

REPO = Path(__file__).parents[2]
TRAIN = 55_000


@pytest.mark.skipif(not os.environ.get("DPREPRO_MIRROR"), reason="DPREPRO_MIRROR names no folder with MNIST")
@pytest.mark.parametrize(
    ("row", "epsilon", "scale", "most"),
    [("phan-f4a-ilm-planned", 0.25, 223.0, 0.25), ("phan-f4b-ilm-planned", 0.5, 111.5, 0.35)],
)
def test_noisy_images_with_clean_labels_tell_little(
    row: str, epsilon: float, scale: float, most: float, tmp_path: Path
) -> None:
    """Class means of all noisy images, with labels that the mechanism doesn't even release.

    The sign is the locally best statistic for the location of Laplace noise this large.
    """
    settings = params.load(REPO / "params.yaml")
    fetch("mnist", settings, tmp_path, Path(os.environ["DPREPRO_MIRROR"]))
    folder = tmp_path / "data" / "raw" / "mnist"
    files = ("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz")
    parts = {
        part: formats.read("idx", [folder / f"{name}-{file}" for file in files])
        for part, name in {"train": "train", "test": "t10k"}.items()
    }
    images, labels = parts["train"].inputs[:TRAIN].reshape(TRAIN, -1), parts["train"].labels[:TRAIN]
    tests = parts["test"].inputs.reshape(-1, images.shape[1]) / np.float32(255)
    declared = settings.rows[row].resolved[0]
    assert isinstance(declared, IlmSettings)
    assert declared.epsilon == epsilon
    network = NetworkSizes(features=images.shape[1], maps=32, neurons=25_088, units=25, classes=10, tensors=0)
    assert declared.input_scale(network) == pytest.approx(scale, abs=0.1)  # pixel ranges

    clean = np.zeros((10, images.shape[1]))
    means, signs = clean.copy(), clean.copy()
    generator = np.random.default_rng(0)
    for start in range(0, TRAIN, 5_000):
        pixels, chosen = images[start : start + 5_000] / np.float32(255), labels[start : start + 5_000]
        noisy = pixels + generator.laplace(0, scale, pixels.shape)
        members = np.eye(10)[chosen].T
        clean += members @ pixels
        means += members @ noisy
        signs += members @ np.sign(noisy)
    counts = np.bincount(labels, minlength=10)[:, None]
    assert _accuracy(clean / counts, tests, parts["test"].labels) > 0.7
    for sums in (means, signs):
        assert _accuracy(sums / counts, tests, parts["test"].labels) < most  # the paper: 88.5 and 92.4 %


def _accuracy(means: np.ndarray, images: np.ndarray, labels: np.ndarray) -> float:
    """Accuracy of the class whose mean has the largest inner product with the image, both centred."""
    scores = (images - images.mean(0)) @ (means - means.mean(0)).T
    return float((scores.argmax(1) == labels).mean())
