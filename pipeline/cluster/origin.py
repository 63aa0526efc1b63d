"""Whether machines that share no folder with this one can have what it has: its revision, and its data."""

from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.cluster.clones import Source, fetch, run
from pipeline.errors import UserError, shown
from pipeline.transport.dvclock import LOCK

CONFIG = Path(".dvc/config")
# what `dprepro repro` itself writes; what searches chose decides rows
RESULTS, SEARCHES = "reports/", "reports/searches/"


def source_of(url: str) -> Source:
    """What machines clone to have this checkout.

    Raises:
        UserError: its files differ from its revision, nobody can have that from the URL, or the revision
            names no DVC remote that all machines can use.
    """
    try:
        inside, revision = run(["git", "rev-parse", "--show-prefix", "HEAD"]).split("\n")[:2]
    except UserError as problem:
        raise UserError(f"clone: this folder is no checkout of git with a commit ({problem})") from problem
    source = Source(url, revision, inside)
    _check_unchanged(source)
    _check_remote()
    _check_there(source)
    return source


def _check_unchanged(source: Source) -> None:
    """Make sure that what git tracks is what machines will clone."""
    listed = run(["git", "status", "--porcelain", "-z", "--no-renames", "--untracked-files=no"])
    changed = [path for entry in listed.split("\0") if (path := entry[3:]) and _decides(path, source.inside)]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise UserError(f"{changed[0]}{more}: not as committed, but other machines clone a commit; commit it")


def _decides(path: str, inside: str) -> bool:
    if not path.startswith(inside):
        return True
    own = path.removeprefix(inside)
    return own != LOCK.name and (not own.startswith(RESULTS) or own.startswith(SEARCHES))


def _check_remote() -> None:
    """Make sure that the revision names a DVC remote as other machines can use it."""
    from configobj import ConfigObj, ConfigObjError

    try:
        config = ConfigObj(run(["git", "show", f"HEAD:{CONFIG}"]).splitlines()).dict()
        name = config["core"]["remote"]
        url = str(config[f'remote "{name}"']["url"])
    except (UserError, ConfigObjError, KeyError, TypeError) as problem:
        raise UserError(
            f"{CONFIG}: the commit has no default remote, from which other machines take data; "
            "`dvc remote add --default NAME URL`, and commit it"
        ) from problem
    if "://" not in url and not Path(url).is_absolute():
        raise UserError(
            f"{CONFIG}: remote {name!r}: {url}: is another folder on another machine; allowed: a URL, or the "
            "whole path of a folder that all machines see"
        )


def _check_there(source: Source) -> None:
    """Make sure that the revision is to be had: as a branch's or tag's, or by its name."""
    wanted = source.revision
    try:
        listed = run(["git", "ls-remote", source.url])
    except UserError as problem:
        raise UserError(f"clone: {source.url}: can't be read: {problem}") from problem
    if any(line.startswith(wanted) for line in listed.splitlines()):
        return
    with TemporaryDirectory(prefix="dprepro-") as folder:
        try:
            fetch(source, Path(folder) / "clone")
        except UserError as problem:
            raise UserError(
                f"clone: {source.url}: commit {wanted[:12]} is not there; push it ({shown(str(problem))})"
            ) from problem
