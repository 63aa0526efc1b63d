"""Protection of private files from git: ignored folders, and a check of what is tracked or staged."""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dprepro.errors import UserError, reading
from dprepro.pipeline.data.own.files import ENDINGS, FOLDER
from dprepro.pipeline.data.own.rows import files_with_rows, has_columns
from dprepro.pipeline.data.prepared import PREPARED
from dprepro.pipeline.data.raw import RAW
from dprepro.pipeline.files import digest_file, write_bytes, writing
from dprepro.pipeline.params import PARAMS, OwnFiles, OwnTable, OwnTexts, load

IGNORE = Path(".gitignore")


def protected(given: str) -> Path | None:
    """Path of own files in this folder, which git ignores from now on; None for files outside this folder.

    Raises:
        UserError: there are no files, or git tracks them already.
    """
    if not Path(given).exists():
        raise UserError(f"{given}: missing; allowed: a file or a folder, anywhere")
    target, top = Path(given).resolve(), Path.cwd()
    inside = target.relative_to(top) if target.is_relative_to(top) else None
    if inside is not None and PARAMS.resolve().is_relative_to(target):
        raise UserError(f"{given}: has or is {PARAMS} itself; allowed: data files, or a folder of them")
    refuse_tracked(tracked([inside or target]))
    ignore([FOLDER, RAW, PREPARED, *([inside] if inside else [])])
    return inside


@contextmanager
def placing(name: str, given: str) -> Iterator[str]:
    """Path of own files for their declaration: a path in this folder that git ignores from now on.

    The files stay where they are. For files outside this folder, a link in `FOLDER` is made. A new link is
    removed if the block fails.

    Args:
        name: name of the data.
        given: path of the files.

    Raises:
        UserError: there are no files, git tracks them already, or another link has the name.
    """
    if (inside := protected(given)) is not None:
        yield inside.as_posix()
        return
    target = Path(given).resolve()
    link = FOLDER / (name + ("" if target.is_dir() else Path(given).suffix))
    is_new = not (link.is_symlink() or link.exists())
    if is_new:
        with writing(link):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
    elif link.resolve() != target:
        raise UserError(
            f"{link}: is there already; allowed: another name, or `dprepro remove data {name}` before"
        )
    try:
        yield link.as_posix()
    except BaseException as problem:
        if is_new:
            link.unlink(missing_ok=True)
        if isinstance(problem, UserError):
            # the message names the files by their original path
            raise UserError(str(problem).replace(link.as_posix(), given)) from problem
        raise


def ignore_inputs(paths: Iterable[Path]) -> None:
    """Let git ignore files to classify that lie in this folder, unless it tracks them already."""
    if not _git(Path(), "rev-parse", "--git-dir"):
        return
    here, params = Path.cwd(), PARAMS.resolve()
    inside = [place for path in paths if (place := path.resolve()).is_relative_to(here)]
    new = [place.relative_to(here) for place in inside if not params.is_relative_to(place)]
    ignore([path for path in new if not tracked([path])])


def ignore_output(path: Path) -> None:
    """Let git ignore the file ``path`` of predictions, which may have columns of private lines.

    Raises:
        UserError: the file is tracked, or in another checkout, which doesn't ignore it.
    """
    if not _git(path.resolve().parent, "rev-parse", "--git-dir"):
        return
    refuse_tracked(tracked([path]))
    place, here = path.resolve(), Path.cwd()
    if place.is_relative_to(here):
        ignore([place.relative_to(here)])
    elif not _ignored(Path(place.name), place.parent):
        raise UserError(
            f"--out {path}: git doesn't ignore it; allowed: a file in this folder or outside checkouts"
        )


def ignore(paths: Iterable[Path], root: Path = Path()) -> None:
    """Add paths that git doesn't ignore yet to ``.gitignore``.

    Raises:
        UserError: ``.gitignore`` can't be read or written, or can't make git ignore a path.
    """
    place, text = root / IGNORE, b""
    if place.exists():
        with reading(place):
            text = place.read_bytes()
    lines = {path: os.fsencode(_pattern(path)) for path in paths if not _ignored(path, root)}
    if lacking := [line for line in lines.values() if line not in text.splitlines()]:
        ended = text if text.endswith(b"\n") or not text else text + b"\n"
        write_bytes(place, ended + b"\n".join(lacking) + b"\n")
    if _git(root, "rev-parse", "--git-dir"):
        for path in lines:
            if not _ignored(path, root):
                raise UserError(f"{path}: private, and {place} can't make git ignore it; move or rename it")


def _pattern(path: Path) -> str:
    """Line of ``.gitignore`` for exactly this path."""
    literal = re.sub(r"[\\*?\[]", r"\\\g<0>", path.as_posix())
    # git drops blanks at the end of a line
    return "/" + re.sub(r" +$", lambda blanks: "\\ " * len(blanks[0]), literal)


def tracked(paths: Iterable[Path], root: Path = Path()) -> list[str]:
    """Tracked or staged files at or below ``paths`` and their link targets, relative to ``root``."""
    here, paths = Path(os.path.realpath(root)), [*paths]
    # as literal names, because names may have special characters
    listed = _listed(root, *(f":(literal){path.as_posix()}" for path in paths))
    for target in (Path(os.path.realpath(root / path)) for path in paths):
        if not target.is_relative_to(here):  # in the checkout around this folder, in another one, or in none
            there = _listed(target.parent, f":(literal){target.name}")
            listed += [os.path.relpath(target.parent / each, here) for each in there]
    return [*dict.fromkeys(listed)]


def _listed(root: Path, *pathspecs: str) -> list[str]:
    """Files of ``pathspecs`` that git tracks, relative to ``root``. Empty outside a checkout."""
    return [name for name in _git(root, "ls-files", "-z", "--", *pathspecs).split("\0") if name]


def private_files(declarations: Mapping[str, OwnFiles]) -> dict[str, list[str]]:
    """Private files that git tracks, and copies of them that are staged, for each own data set.

    Original, fetched and prepared files are found wherever git tracks them. Copies of original and fetched
    files, files with some rows of a private table or CSV of texts, and tables with all columns of a private
    table, such as predictions, are found in what the next commit adds or changes, in the whole checkout, by
    git's own content.
    """
    if not declarations:
        return {}
    tracked_files = {}
    with TemporaryDirectory() as folder:
        staged = _staged(Path(folder))
        sizes = {path: path.stat().st_size for _, path in staged}
        for name, declared in declarations.items():
            places = [Path(declared.path), RAW / name]
            private = {path: path.stat().st_size for place in places for path in _data_files(place)}
            # only files with the size of a private file are read
            same_size = {*sizes.values()} & {*private.values()} - {0}
            digests = {digest_file(path) for path, size in private.items() if size in same_size}
            copies = [
                each for each, path in staged if sizes[path] in same_size and digest_file(path) in digests
            ]
            found = list(dict.fromkeys([*tracked([*places, PREPARED / name]), *copies]))
            if isinstance(declared, OwnTable | OwnTexts):
                others = [(each, path) for each, path in staged if each not in found]
                tables = {path.resolve() for path in private}
                parts = {*files_with_rows(tables, (path for _, path in others))}
                if isinstance(declared, OwnTable) and len(declared.columns) > 1:  # new lines, or predictions
                    parts |= {path for _, path in others if has_columns(path, declared.columns)}
                found += dict.fromkeys(each for each, path in others if path in parts)
            tracked_files[name] = found
    return {name: files for name, files in tracked_files.items() if files}


def _staged(folder: Path) -> list[tuple[str, Path]]:
    """Files that the next commit adds or changes, with their staged content as a file in ``folder``."""
    staged = []
    top = _git(Path(), "rev-parse", "--show-cdup").strip()
    names = _git(Path(), "diff", "--cached", "--diff-filter=d", "--name-only", "-z").split("\0")
    for number, below_top in enumerate(filter(None, names)):
        name = os.path.relpath(f"{top}{below_top}")
        place = folder / f"{number}{Path(name).suffix}"
        place.write_bytes(os.fsencode(_git(Path(), "cat-file", "blob", f":{below_top}")))
        staged.append((name, place))
    return staged


def _data_files(place: Path) -> Iterator[Path]:
    """Files at or below ``place`` with a data file's ending, whether they are declared or not."""
    for path in (place, *place.rglob("*")):
        if path.suffix.lower() in ENDINGS and path.is_file():
            yield path


def refuse_tracked(files: list[str]) -> None:
    """Refuse private files that git tracks.

    Raises:
        UserError: ``files`` is not empty.
    """
    if files:
        more = f" and {len(files) - 1:,} more files" if len(files) > 1 else ""
        raise UserError(
            f"{files[0]}{more}: private, and git tracks it; `git rm -r --cached` takes it out of the next "
            "commit, and commits that have it keep it; `git commit --no-verify` commits public lines in a "
            "private table's columns"
        )


def _ignored(path: Path, root: Path) -> bool:
    place = root / path
    # a folder, or a path that may become one
    folder = not place.is_symlink() and (place.is_dir() or not place.exists())
    return bool(_git(root, "check-ignore", "--no-index", "--", path.as_posix() + ("/" if folder else "")))


def _git(root: Path, *command: str) -> str:
    """Output of a git command; '' if it fails or git is missing."""
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
