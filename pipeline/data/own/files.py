"""Files of a declaration of own data, and their digest."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dprepro.errors import UserError, listed, notice, reading
from dprepro.pipeline.files import OWN_BYTES, OWN_FILES, digest_file
from dprepro.pipeline.params import PARAMS, OwnArrays, OwnFiles, OwnImages, OwnTable

FOLDER = Path("data/own")  # links to files elsewhere, or copies of them; ignored by git
PARTS = ("train", "test")
# folders that operating systems and archives add
SYSTEM = ("__macosx", "@eadir", "$recycle.bin", "lost+found", "system volume information")
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
    if isinstance(declaration, OwnImages):
        folders = {f"{part}/": place / part for part in PARTS} if parted(declaration) else {"": place}
        files = {
            f"{below}{path.relative_to(folder).as_posix()}": path
            for below, folder in folders.items()
            for path in _images(name, folder, declaration)
        }
    elif parted(declaration):
        kind = ending(declaration)
        files = {f"{part}{kind}": place / f"{part}{kind}" for part in PARTS}
    else:
        files = {f"all{ending(declaration)}": place}
    if len(files) > OWN_FILES:
        raise UserError(f"{place}: more than {OWN_FILES:,} files")
    for path in files.values():
        _check_file(name, path, declaration, within)
    return files


def is_part(folder: Path) -> bool:
    """Return whether a folder of images is a part, which holds classes; a class may be named `train`."""
    return len(class_folders(folder)) > 1


def say_other_parts(place: Path, parts: Sequence[Path]) -> None:
    """Say what ``place`` has beside its ``parts``, because it is left out."""
    if others := [path.name for path in _listed(place) if path not in parts and not _is_hidden(path.name)]:
        notice(f"{place}: left out: {listed(others)}; the parts are train and test")


def _listed(folder: Path) -> list[Path]:
    """Files and folders in ``folder`` in the order of their names; empty if it is no folder."""
    if not folder.is_dir():
        return []
    with reading(folder):
        return sorted(folder.iterdir())


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
    return [path.name for path in _listed(folder) if path.is_dir() and not _is_hidden(path.name)]


def images_of(folder: Path) -> list[Path]:
    """Paths of the images in the folder of a class, in the order of their names; hidden ones are left out.

    Raises:
        UserError: an image is no regular file.
    """
    images = [path for path in _files_in(folder) if _is_image(path, folder)]
    for path in images:
        check_regular(path)
    return images


def say_left_out(folder: Path) -> None:
    """Say how many files of a folder of classes are no examples: hidden ones, and those of other endings."""
    others = [path for path in _files_in(folder) if not _is_image(path, folder)]
    if counts := Counter(path.suffix.lower() or "no ending" for path in others):
        endings = ", ".join(f"{ending} {count:,}" for ending, count in sorted(counts.items()))
        notice(f"{folder}: left out: {endings}; images end in {', '.join(IMAGES)} and are not hidden")


def _files_in(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if not path.is_dir())


def _is_image(path: Path, folder: Path) -> bool:
    hidden = any(map(_is_hidden, path.relative_to(folder).parts))
    return path.suffix.lower() in IMAGES and not hidden


def _is_hidden(name: str) -> bool:
    return name[0] == "." or name.lower() in SYSTEM


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
