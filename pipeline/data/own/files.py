"""Which files a declaration means, and one digest of them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline.errors import UserError, reading
from pipeline.files import digest_file, digest_json
from pipeline.limits import OWN_BYTES, OWN_FILES
from pipeline.params import PARAMS, OwnArrays, OwnFiles, OwnImages, OwnTable

FOLDER = Path("data/own")  # links to files that lie elsewhere, or copies of them; ignored by git
PARTS = ("train", "test")
# of images that Pillow is asked to read: what torchvision's ImageFolder takes, less what only libtiff reads
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".webp")
ENDINGS = (*IMAGES, ".npz", ".csv", ".parquet")


def ending(declaration: OwnFiles) -> str:
    """Of the names of its files, where there are no images in it."""
    if isinstance(declaration, OwnTable):
        return f".{declaration.file}"
    return ".npz" if isinstance(declaration, OwnArrays) else ".csv"


def parted(declaration: OwnFiles) -> bool:
    """Whether its path is a folder with a part `train` and a part `test`."""
    return declaration.test is None and not (isinstance(declaration, OwnArrays) and declaration.test_inputs)


def bound(declaration: OwnFiles, root: Path) -> Path:
    """What nothing of a declaration may lead out of: ``root``, or what a link below `FOLDER` leads to."""
    place = root / declaration.path
    linked = place.parent == root / FOLDER and place.is_symlink()
    return place.resolve() if linked else root


def find(name: str, declaration: OwnFiles, root: Path) -> dict[str, Path]:
    """The files of a declaration, by their names below ``data/raw/NAME``.

    Args:
        name: a key of ``own`` in params.yaml.
        declaration: the entry of that key.
        root: the folder of params.yaml; only a link of `FOLDER` itself may lead out of it.

    Raises:
        UserError: a file or a folder is missing, leads elsewhere or is too large.
    """
    place, within = root / declaration.path, bound(declaration, root)
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
    """One digest of files by their names; that of the file itself where it is the only one."""
    return (
        next(iter(digests.values()))
        if [*digests] in ([f"all{ending}"] for ending in ENDINGS)
        else digest_json(digests)
    )


def digests(files: Mapping[str, Path]) -> dict[str, str]:
    """Each file's digest, by its name.

    Raises:
        UserError: one can't be read.
    """
    digest_of_name = {}
    for name, path in sorted(files.items()):
        with reading(path):
            digest_of_name[name] = digest_file(path)
    return digest_of_name


def class_folders(folder: Path) -> list[str]:
    """Names of the folders in ``folder``, a class each, in the order of ImageFolder.

    Raises:
        UserError: it can't be read.
    """
    with reading(folder):
        return sorted(each.name for each in folder.iterdir() if each.is_dir() and each.name[0] != ".")


def images_of(folder: Path) -> list[Path]:
    """The images of a class, in the order of their names.

    Raises:
        UserError: one is no regular file.
    """
    images = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGES]
    for path in images:
        check_regular(path)
    return images


def _images(name: str, folder: Path, declaration: OwnFiles) -> Iterator[Path]:
    """The images of a part, class by class."""
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
    check_inside(path, within)
    if not path.is_file():
        raise UserError(_missing(name, path, declaration))
    if path.stat().st_size > OWN_BYTES:
        raise UserError(f"{path}: larger than {OWN_BYTES >> 30} GB, which is the most of a file")


def _missing(name: str, path: Path, declaration: OwnFiles) -> str:
    without = ", which without `test` holds the parts train and test" if parted(declaration) else ""
    return f"{path}: missing; {PARAMS} has own.{name}.path: {declaration.path}{without}"


def check_regular(path: Path) -> None:
    """Make sure that a path that exists is a file on a disk: a pipe or a device would be read for ever.

    Raises:
        UserError: it isn't.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: no regular file; allowed: files on a disk")


def check_inside(path: Path, within: Path) -> None:
    """Make sure that a path leads nowhere else; links are followed as long as they stay within.

    Raises:
        UserError: it does.
    """
    try:
        inside = path.resolve().is_relative_to(within.resolve())
    except (OSError, RuntimeError):  # a link that leads to itself; before Python 3.13 a RuntimeError
        inside = False
    if not inside:
        raise UserError(f"{path}: leads out of {within.resolve()}; allowed: files in it")
