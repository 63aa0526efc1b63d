"""Private files stay out of git: their folders are ignored before the first is read, and git is asked."""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copyfileobj, copytree, rmtree

from pipeline.data.own.files import FOLDER, leading
from pipeline.data.prepared import PREPARED
from pipeline.data.raw import RAW, read_source
from pipeline.errors import UserError, reading, writing
from pipeline.files import digest_file, replacing, replacing_folder, write_bytes
from pipeline.params import PARAMS, OwnFiles, load

IGNORE = Path(".gitignore")


def placed(name: str, given: str, copy: bool, root: Path = Path()) -> str:
    """Where a declaration finds files from anywhere: a path below ``root``, which git ignores from here on.

    Args:
        name: what the data will be called.
        given: where the files are. Below ``root`` they stay; elsewhere too, and a link is made to them.
        copy: whether they are copied into the folder that git ignores instead.
        root: the folder of params.yaml.

    Raises:
        UserError: there are none, git has them already, or another link or copy has the name.
    """
    files = Path(given) if Path(given).is_absolute() else root / given
    if not files.exists():
        raise UserError(f"{given}: missing; allowed: a file or a folder, anywhere")
    private, target, top = [FOLDER, RAW, PREPARED], files.resolve(), root.resolve()
    inside = target.relative_to(top) if target.is_relative_to(top) else None
    if inside is None:
        _refuse_unignored(target)
        refuse_tracked(tracked([target], root))
    else:
        if (root / PARAMS).resolve().is_relative_to(target):
            raise UserError(f"{given}: has or is {PARAMS} itself; allowed: data files, or a folder of them")
        refuse_tracked(tracked([inside], root))
        private.append(inside)
    ignore(private, root)
    if inside is not None and not copy:
        return inside.as_posix()
    place = FOLDER / (name + ("" if files.is_dir() else files.suffix))
    if (root / place).is_symlink() or (root / place).exists():
        if copy or (root / place).resolve() != target:
            raise UserError(
                f"{place}: is there already{leading(root / place)}; allowed: another name, "
                f"or `--npz {place}` and the like"
            )
        return place.as_posix()
    with reading(files), writing(root / place):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        if copy:
            _copy(files, root / place)
        else:
            (root / place).symlink_to(target)
    return place.as_posix()


@contextmanager
def placing(name: str, given: str, copy: bool, root: Path = Path()) -> Iterator[str]:
    """As `placed`; a block that fails leaves no link, copies or arrays, and ``.gitignore`` as it was."""

    def there() -> set[Path]:
        folders = [root / folder for folder in (FOLDER, RAW, PREPARED)]
        every = (path for folder in folders for path in folder.glob(f"{name}*"))
        return {path for path in every if path.name.partition(".")[0] == name}

    before, lines = there(), (root / IGNORE).read_bytes() if (root / IGNORE).exists() else None
    try:
        place = placed(name, given, copy, root)
        try:
            yield place
        except UserError as problem:  # about the files, by where they are when it is read
            moved = Path(place).parent == FOLDER
            raise UserError(str(problem).replace(place, given) if moved else str(problem)) from problem
    except BaseException:
        for path in there() - before:
            rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for folder in (FOLDER, RAW, PREPARED, FOLDER.parent):
            with suppress(OSError):  # it isn't empty, or wasn't made
                (root / folder).rmdir()
        if lines is None:
            (root / IGNORE).unlink(missing_ok=True)
        else:
            write_bytes(root / IGNORE, lines)
        if before:  # what an earlier command left
            ignore([FOLDER, RAW, PREPARED], root)
        raise


def _refuse_unignored(files: Path) -> None:
    """Refuse files that the checkout they lie in, if any, doesn't ignore."""
    folder = files if files.is_dir() else files.parent
    checkout = _git(folder, "rev-parse", "--show-toplevel").removesuffix("\n")
    if checkout and not _ignored(files, Path(checkout)):
        raise UserError(
            f"{files}: private, and lies in the checkout {checkout}, whose {IGNORE} doesn't name it; "
            "add it there, or move the files"
        )


def _copy(files: Path, target: Path) -> None:
    """Whole or not at all. A link that leads elsewhere stays one, and is refused where it is read."""
    if files.is_dir():
        with replacing_folder(target) as building:
            copytree(files, building, symlinks=True, dirs_exist_ok=True)
    else:
        with files.open("rb") as whole, replacing(target) as copy:
            copyfileobj(whole, copy)


def ignore(paths: Iterable[Path], root: Path = Path()) -> None:
    """Add to ``.gitignore`` what git doesn't ignore yet.

    Raises:
        UserError: it can't be read or written.
    """
    place, text = root / IGNORE, b""
    if place.exists():
        with reading(place):
            text = place.read_bytes()
    lines = {
        path: os.fsencode(f"/{_literally(path.as_posix())}") for path in paths if not _ignored(path, root)
    }
    if lacking := [line for line in lines.values() if line not in text.splitlines()]:
        ended = text if text.endswith(b"\n") or not text else text + b"\n"
        write_bytes(place, ended + b"\n".join(lacking) + b"\n")
    if _git(root, "rev-parse", "--git-dir"):
        for path in lines:
            if not _ignored(path, root):
                raise UserError(f"{path}: private, and {place} can't make git ignore it; move or rename it")


def _literally(path: str) -> str:
    """A path as a line of .gitignore, where some characters would be a pattern and spaces at its end none."""
    escaped = re.sub(r"([\\*?\[])", r"\\\1", path)
    ended = escaped.rstrip(" ")
    return ended + "\\ " * (len(escaped) - len(ended))


def tracked(paths: Iterable[Path], root: Path = Path()) -> list[str]:
    """Files at or below these paths, and where links lead, that git tracks or is about to; from ``root``."""
    here, paths = Path(os.path.realpath(root)), [*paths]
    # as they are called, whatever letters they have
    listed = _listed(root, *(f":(literal){path.as_posix()}" for path in paths))
    for target in (Path(os.path.realpath(root / path)) for path in paths):
        if not target.is_relative_to(here):  # it may be in the checkout around this folder, or in another one
            there = _listed(target.parent, f":(literal){target.name}")
            listed += [os.path.relpath(target.parent / each, here) for each in there]
    return [*dict.fromkeys(listed)]


def _listed(root: Path, *pathspecs: str) -> list[str]:
    """What git tracks of these, from ``root``; nothing outside a checkout."""
    return [name for name in _git(root, "ls-files", "-z", "--", *pathspecs).split("\0") if name]


def private_files(declarations: Mapping[str, OwnFiles], root: Path = Path()) -> dict[str, list[str]]:
    """Files of each own data set that git tracks: as they lie, were fetched, prepared or copied.

    Copies are looked for in the whole checkout, of which ``root`` may be a folder.
    """
    every = _listed(root, ":(top)") if declarations else []
    tracked_files = {}
    for name, declared in declarations.items():
        places = [Path(declared.path), RAW / name, PREPARED / name]
        digests: dict[str, str] = {}
        with suppress(UserError):  # it wasn't fetched
            _, digests = read_source(root / RAW / name, "")
        sizes = {path.stat().st_size for path in map((root / RAW / name).joinpath, digests) if path.is_file()}
        copies = [
            each
            for each in every
            if (root / each).is_file()
            and (root / each).stat().st_size in sizes - {0}
            and digest_file(root / each) in digests.values()
        ]
        tracked_files[name] = list(dict.fromkeys([*tracked(places, root), *copies]))
    return {name: files for name, files in tracked_files.items() if files}


def refuse_tracked(files: list[str]) -> None:
    """Refuse private files that git has.

    Raises:
        UserError: there are any.
    """
    if files:
        more = f" and {len(files) - 1:,} more files" if len(files) > 1 else ""
        raise UserError(
            f"{files[0]}{more}: private, and git tracks it; `git rm -r --cached` takes it out of the next "
            "commit, and commits that have it keep it"
        )


def _ignored(path: Path, root: Path) -> bool:
    place = root / path
    # a folder, or what may only become one
    folder = not place.is_symlink() and (place.is_dir() or not place.exists())
    return bool(_git(root, "check-ignore", "--no-index", "--", path.as_posix() + ("/" if folder else "")))


def _git(root: Path, *command: str) -> str:
    """What git says; nothing where it is missing or has nothing to say."""
    try:
        done = subprocess.run(["git", "-C", str(root), *command], capture_output=True, check=False)
    except OSError:
        return ""
    return os.fsdecode(done.stdout) if done.returncode == 0 else ""


if __name__ == "__main__":  # before each commit (.pre-commit-config.yaml)
    try:
        for files in private_files(load().own).values():
            refuse_tracked(files)
    except UserError as problem:
        raise SystemExit(str(problem)) from None
