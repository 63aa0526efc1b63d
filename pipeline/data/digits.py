"""Source `digits`: real images for a first run without a download, in MNIST's files.

They are the 1,797 handwritten digits of 8 x 8 pixels that scikit-learn ships: the test part of Alpaydin and
Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998,
doi:10.24432/C50P49.
"""

from pathlib import Path

import numpy as np

from dprepro.pipeline.data.catalog import OFFICIAL, Entry
from dprepro.pipeline.data.formats import write_idx
from dprepro.pipeline.files import writing

TITLE = "scikit-learn's digits in place of MNIST"
LICENCE = (
    "CC BY 4.0, citing Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, "
    "UCI Machine Learning Repository, 1998, doi:10.24432/C50P49"
)
TEST = 297  # the last images, of other writers than the first ones
SCALE, BORDER, LEVELS = 3, 2, 16  # 8 x 8 pixels of 0 to 16 become 28 x 28 bytes


def write(entry: Entry, folder: Path) -> None:
    """Write the digits under the official file names of ``entry``, a data set of 28 x 28 pixels in idx files.

    Raises:
        UserError: ``folder`` can't be written.
    """
    from sklearn.datasets import load_digits  # takes a second

    digits = load_digits()
    images, labels = _scaled(digits.images.astype(np.int64)), digits.target.astype(np.uint8)
    official = entry.editions[OFFICIAL]
    for files, part in ((official.train, slice(-TEST)), (official.test, slice(-TEST, None))):
        for file, array in zip(files, (images[part], labels[part]), strict=True):
            with writing(folder / file.name):
                (folder / file.name).write_bytes(write_idx(array))


def _scaled(images: np.ndarray) -> np.ndarray:
    """Images (N, 28, 28) of images (N, 8, 8), uint8: linear interpolation and a black border."""
    large = images.repeat(SCALE, axis=1).repeat(SCALE, axis=2)
    large = np.pad(large, ((0, 0), (BORDER, BORDER), (BORDER, BORDER)))
    for axis in (1, 2):
        large = np.roll(large, 1, axis) + large + np.roll(large, -1, axis)
    return (255 * large // (LEVELS * SCALE**2)).astype(np.uint8)
