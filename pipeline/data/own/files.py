"""Files of a declaration of own data, and their digest."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from dprepro.errors import UserError, reading
from dprepro.pipeline.files import digest_file, digest_json
from dprepro.pipeline.limits import OWN_BYTES, OWN_FILES
from dprepro.pipeline.params import PARAMS, OwnArrays, OwnFiles, OwnImages, OwnTable

FOLDER = Path("data/own")  # links to files elsewhere, or copies of them; ignored by git
PARTS = ("train", "test")
# endings of images for Pillow: those of torchvision's ImageFolder, without those that need libtiff
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".webp")
ENDINGS = (*IMAGES, ".npz", ".csv", ".parquet")


def ending(declaration: OwnFiles) -> str:
    """Ending of the names of declared files that aren't image files: '.csv', '.parquet' or '.npz'."""
    if isinstance(declaration, OwnTable):
        return f".{declaration.file}"
    return ".npz" if isinstance(declaration, OwnArrays) else ".csv"


def parted(declaration: OwnFiles) -> bool:
    """Return whether the path of ``declaration`` is a folder with the parts `train` and `test`."""
    return declaration.test is None and not (isinstance(declaration, OwnArrays) and declaration.test_inputs)


def find(name: str, declaration: OwnFiles, root: Path) -> dict[str, Path]:
    """Files of a declaration, by their names below ``data/raw/NAME``.

    Only a link in `FOLDER` may lead out of ``root``, the folder of params.yaml.

    Raises:
        UserError: a file or a folder is missing or leads elsewhere, a file is too large, or the files are
            too many.
    """
    place = root / declaration.path
    linked = place.parent == root / FOLDER and place.is_symlink()
    within = place.resolve() if linked else root
    parts = PARTS if parted(declaration) else ("",)
    if isinstance(declaration, OwnImages):
        files = {
            path.relative_to(place).as_posix(): path
            for part in parts
            for path in _images(name, place / part, declaration)
        }
    elif parted(declaration):
        files = {f"{part}{ending(declaration)}": place / f"{part}{ending(declaration)}" for part in parts}
    else:
        files = {f"all{ending(declaration)}": place}
    if len(files) > OWN_FILES:
        raise UserError(f"{place}: more than {OWN_FILES:,} files")
    for path in files.values():
        _check_file(name, path, declaration, within)
    return files


def digest_of(digests: Mapping[str, str]) -> str:
    """Digest of all files, from their ``digests`` by name; of a single file, the digest of that file."""
    return (
        next(iter(digests.values()))
        if [*digests] in ([f"all{ending}"] for ending in ENDINGS)
        else digest_json(digests)
    )


def digests(files: Mapping[str, Path]) -> dict[str, str]:
    """Digest of each file, by its name.

    Raises:
        UserError: a file can't be read.
    """
    digest_of_name = {}
    for name, path in sorted(files.items()):
        with reading(path):
            digest_of_name[name] = digest_file(path)
    return digest_of_name


def class_folders(folder: Path) -> list[str]:
    """Names of the folders in ``folder``, one per class, in the order of ImageFolder.

    Raises:
        UserError: the folder can't be read.
    """
    with reading(folder):
        return sorted(each.name for each in folder.iterdir() if each.is_dir() and each.name[0] != ".")


def images_of(folder: Path) -> list[Path]:
    """Paths of the images in the folder of a class, in the order of their names.

    Raises:
        UserError: an image is no regular file.
    """
    images = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGES]
    for path in images:
        check_regular(path)
    return images


def _images(name: str, folder: Path, declaration: OwnFiles) -> Iterator[Path]:
    """Paths of the images of a part, class by class."""
    if not folder.is_dir():
        raise UserError(_missing(name, folder, declaration))
    there = class_folders(folder)
    if strange := [each for each in there if each not in declaration.classes]:
        raise UserError(f"{folder / strange[0]}: no class of own.{name}.classes in {PARAMS}")
    for each in declaration.classes:
        if each not in there:
            raise UserError(f"{folder / each}: missing; a folder of images for each of own.{name}.classes")
        yield from images_of(folder / each)


def _check_file(name: str, path: Path, declaration: OwnFiles, within: Path) -> None:
    """Make sure that a file is there, and neither outside the folder ``within`` nor too large."""
    try:
        inside = path.resolve().is_relative_to(within.resolve())
    except (OSError, RuntimeError):  # a link that leads to itself; before Python 3.13 a RuntimeError
        inside = False
    if not inside:
        raise UserError(f"{path}: leads out of {within.resolve()}; allowed: files in it")
    if not path.is_file():
        raise UserError(_missing(name, path, declaration))
    if path.stat().st_size > OWN_BYTES:
        raise UserError(f"{path}: larger than {OWN_BYTES >> 30} GB, which is the most of a file")


def _missing(name: str, path: Path, declaration: OwnFiles) -> str:
    without = ", which without `test` holds the parts train and test" if parted(declaration) else ""
    return f"{path}: missing; {PARAMS} has own.{name}.path: {declaration.path}{without}"


def check_regular(path: Path) -> None:
    """Make sure that an existing path is a regular file: reading a pipe or a device may never end.

    Raises:
        UserError: the path is another kind of file.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: no regular file; allowed: files on a disk")
