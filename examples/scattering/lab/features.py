"""Official images -> `features/NAME.npz`: the scattering features of every image, as files of one's own.

`python -m lab.features NAME...`, in the folder of params.yaml, after `dprepro fetch NAME`. Of a set whose
images are only public here, `--first N` takes the first training images alone.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from lab.scattering import scattering
from pipeline import params
from pipeline.data import raw
from pipeline.data.formats import Examples
from pipeline.files import digest_file

FOLDER = Path("features")
AT_ONCE = 64


def features(images: np.ndarray) -> np.ndarray:
    """float16 (N, C 81, H / 4, W / 4) of uint8 ``images`` (N, C, H, W): all lie between 0 and 1."""
    first = scattering(torch.from_numpy(np.array(images[:1])).float() / 255)
    found = np.empty((len(images), *first.shape[1:]), dtype=np.float16)
    for start in range(0, len(images), AT_ONCE):
        part = torch.from_numpy(np.array(images[start : start + AT_ONCE])).float() / 255
        found[start : start + AT_ONCE] = scattering(part).numpy()
    return found


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
