"""Official images -> `features/NAME.npz`: the scattering features of every image, as files of one's own.

`python -m lab.features NAME...`, in the folder of params.yaml, after `dprepro fetch NAME`. Of a set whose
images are only public here, `--first N` takes the first training images alone.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from dprepro.pipeline import params
from dprepro.pipeline.data import raw
from dprepro.pipeline.data.formats import Examples
from dprepro.pipeline.files import digest_file
from lab.scattering import scattering

FOLDER = Path("features")
AT_ONCE = 64
# Of red, green and blue: ImageNet's, which are public, as in the authors' code.
MEANS, DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pixels(images: np.ndarray) -> torch.Tensor:
    """float32 (N, C, H, W) of uint8 ``images``: in [0, 1]; in colour, less means, over deviations."""
    values = torch.from_numpy(np.array(images)).float() / 255
    if values.shape[1] == 1:
        return values
    means, deviations = (torch.tensor(constants)[:, None, None] for constants in (MEANS, DEVIATIONS))
    return (values - means) / deviations


def features(images: np.ndarray) -> np.ndarray:
    """float16 (N, C 81, H / 4, W / 4) of uint8 ``images`` (N, C, H, W), C 1 or 3."""
    shape = scattering(pixels(images[:1])).shape[1:]
    computed = np.empty((len(images), *shape), dtype=np.float16)
    for start in range(0, len(images), AT_ONCE):
        computed[start : start + AT_ONCE] = scattering(pixels(images[start : start + AT_ONCE])).numpy()
    return computed


def write(name: str, parts: dict[str, Examples], first: int | None = None) -> Path:
    """Write the features and labels of ``parts``, 'train' and 'test'; returns the path."""
    path = FOLDER / f"{name}.npz"
    arrays = {}
    for part, before in (("train", ""), ("test", "test_")) if first is None else (("train", ""),):
        examples = parts[part]
        arrays[f"{before}inputs"] = features(examples.inputs[:first])
        arrays[f"{before}labels"] = examples.labels[:first]
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        np.savez(file, **arrays)
    partial.rename(path)
    return path


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="+", metavar="NAME", help="a key of 'raw' in params.yaml")
    parser.add_argument("--first", type=int, help="so many of the training images alone")
    asked = parser.parse_args()
    settings = params.load()
    for name in asked.names:
        path = write(name, raw.load(name, settings).parts, asked.first)
        print(f"{path}: {digest_file(path)}")


if __name__ == "__main__":
    main()
