"""Hostile input of every kind that is read, made from good input by a seeded generator.

Whatever comes, there may be a result or one `UserError`; anything else is a traceback, and more than
`LIMIT` seconds are a hang.
"""

import copy
import gzip
import io
import json
import os
import random
import shutil
import signal
import tarfile
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from pipeline.data import catalog, formats, prepared, sources
from pipeline.data.catalog import Archive, File
from pipeline.data.own.describe import describe
from pipeline.errors import UserError
from pipeline.files import digest, digest_file
from pipeline.ledgers.accounts import dpsgd_settings, spending_of
from pipeline.ledgers.ledger import make_ledger
from pipeline.results import records
from pipeline.results.histories import read_history
from pipeline.transport import archive
from stages.app import app
from tests.faults import project

LIMIT = 20  # seconds
VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 0.5, 10**12, 10**30, -(10**30), 1e-300, 1e308, float("nan"), float("inf"),
    "", "x", "nan", "../../evil", "/etc/passwd", "x" * 5000, "\x1b[31m\n\x00", "\u202e", "1e400", "small",
    [], [[]], {}, {"a": {}}, [1, "a", None], {"": 0}, {"epsilon": 1}, [{"epsilon": -1}], [{}],
]  # fmt: skip


class Hang(BaseException):
    """It took too long."""


@contextmanager
def limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def bytes_from(good: bytes, chance: random.Random) -> bytes:
    """``good`` with one to three kinds of damage."""
    found = bytearray(good)
    for _ in range(chance.randint(1, 3)):
        at, length = chance.randrange(len(found) + 1), chance.choice([1, 1, 2, 8, 100])
        what = chance.randrange(6)
        if what == 0 and found:
            found[at % len(found)] ^= 1 << chance.randrange(8)
        elif what == 1:
            del found[at : at + length]
        elif what == 2:
            found[at:at] = chance.randbytes(length)
        elif what == 3:
            found[at:at] = found[at : at + length] * chance.choice([1, 2, 50])
        elif what == 4:
            del found[at:]
        else:
            token = chance.choice(
                [b"*", b"&a ", b"!!python/name:os.system ", b"\xff\xfe", b"\0", b"[", b"{", b"- "]
            )
            found[at:at] = token * chance.choice([1, 1, 100, 20000])
    return bytes(found)


def tree_from(good: Any, chance: random.Random) -> Any:
    """``good`` with one to three of its values or keys replaced."""
    found = copy.deepcopy(good)
    for _ in range(chance.randint(1, 3)):
        at = found
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = chance.choice(keys)
            if isinstance(at[key], dict | list) and at[key] and chance.random() < 0.8:
                at = at[key]
                continue
            what = chance.randrange(5)
            if what == 0 and isinstance(at, dict):
                at[chance.choice(["typo", "../x", "", "a b", "epsilon"])] = at.pop(key)
            elif what == 1:
                del at[key]
            else:
                at[key] = copy.deepcopy(chance.choice(VALUES))
            break
    return found


def text_of(tree: Any) -> bytes:
    stream = io.StringIO()
    YAML(typ="safe").dump(tree, stream)
    return stream.getvalue().encode(errors="surrogatepass")


class Inputs:
    """The kinds; each takes a generator, makes one input in the current folder's project and reads it."""

    def __init__(self) -> None:
        self.good: dict[str, bytes] = {}
        self.params = YAML(typ="safe").load(project.PARAMS)

    def kinds(self) -> dict[str, Callable[[random.Random], None]]:
        return {
            "params": self.parameters,
            "records": self.records,
            "histories": self.histories,
            "packs": self.packs,
            "prepared": self.prepared,
            "idx": self.idx,
            "archives": self.archives,
            "own files": self.own_files,
            "accounting": self.accounting,
            "arguments": self.arguments,
        }

    def _replace(self, path: Path, content: bytes, read: Callable[[], object]) -> None:
        """Read with another content of a file, and put the good one back."""
        good = self.good.setdefault(str(path), path.read_bytes())
        path.write_bytes(content)
        try:
            read()
        finally:
            path.write_bytes(good)

    def parameters(self, chance: random.Random) -> None:
        if chance.random() < 0.5:
            content = text_of(tree_from(self.params, chance))
        else:
            content = bytes_from(project.PARAMS.encode(), chance)
        self._replace(Path("params.yaml"), content, project.settings)

    def records(self, chance: random.Random) -> None:
        path = chance.choice([records.run_path, records.evaluation_path, records.ledger_path])(project.ROW)
        good = self.good.setdefault(str(path), path.read_bytes())
        if chance.random() < 0.6:
            content = json.dumps(tree_from(json.loads(good), chance)).encode(errors="surrogatepass")
        else:
            content = bytes_from(good, chance)
        row = project.settings().rows[project.ROW]

        def read() -> None:
            records.read(project.ROW, row)
            if path == records.run_path(project.ROW) and chance.random() < 0.2:
                project.evaluate()

        self._replace(path, content, read)

    def histories(self, chance: random.Random) -> None:
        path = records.history_path(project.ROW)
        good = self.good.setdefault(str(path), path.read_bytes())
        self._replace(path, bytes_from(good, chance), lambda: read_history(path))

    def packs(self, chance: random.Random) -> None:
        good = self.good.setdefault(str(project.PACK), project.PACK.read_bytes())
        if chance.random() < 0.3:
            content = bytes_from(good, chance)
        else:
            content = gzip.compress(self._repacked(good, chance), 1)
        staged = Path(".dprepro/fuzz")
        self._replace(project.PACK, content, lambda: archive.read(project.PACK, staged))

    @staticmethod
    def _repacked(good: bytes, chance: random.Random) -> bytes:
        """Another tar: of members that were changed, with other names, kinds and headers."""
        if chance.random() < 0.4:
            return bytes_from(gzip.decompress(good), chance)
        out = io.BytesIO()
        with tarfile.open(fileobj=io.BytesIO(good)) as tar, tarfile.open(fileobj=out, mode="w") as new:
            for member in tar.getmembers():
                stream = tar.extractfile(member)
                content = stream.read() if stream else b""
                if chance.random() < 0.3 and member.name == archive.MANIFEST:
                    content = json.dumps(tree_from(json.loads(content), chance)).encode(
                        errors="surrogatepass"
                    )
                elif chance.random() < 0.2:
                    content = bytes_from(content, chance)
                if chance.random() < 0.2:
                    member.name = chance.choice(["../evil", "/tmp/evil", "", "a" * 300, member.name + "\x00"])
                if chance.random() < 0.1:
                    member.type = chance.choice(
                        [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, b"S", b"x"]
                    )
                member.size = len(content) if member.isreg() else 0
                new.addfile(member, io.BytesIO(content))
        return out.getvalue()

    def prepared(self, chance: random.Random) -> None:
        folder = prepared.PREPARED / "mnist"
        path = folder / chance.choice(["manifest.json", "train.inputs.npy", "train.labels.npy"])
        good = self.good.setdefault(str(path), path.read_bytes())
        if path.suffix == ".json" and chance.random() < 0.7:
            content = json.dumps(tree_from(json.loads(good), chance)).encode(errors="surrogatepass")
        elif path.suffix == ".npy" and chance.random() < 0.5:
            shape = chance.choice([(0,), (3,), (110, 1, 28, 28), (2, 2)])
            kind = chance.choice(["u1", "i8", "f4", "U3", "?", "M8[s]"])
            content = project.npy(np.zeros(shape, kind))
        else:
            content = bytes_from(good, chance)

        def read() -> None:
            if path.suffix == ".json" or chance.random() < 0.3:
                prepared.load("mnist")
                return
            # with a manifest that vouches for it
            vouched = json.loads((folder / "manifest.json").read_bytes())
            vouched["digests"][path.stem] = digest_file(path)
            self._replace(
                folder / "manifest.json", json.dumps(vouched).encode(), lambda: prepared.load("mnist")
            )

        self._replace(path, content, read)

    def idx(self, chance: random.Random) -> None:
        path = Path("data/raw/mnist/train-images-idx3-ubyte.gz")
        good = self.good.setdefault(str(path), path.read_bytes())
        if chance.random() < 0.5:
            content = bytes_from(good, chance)
        else:
            content = gzip.compress(bytes_from(gzip.decompress(good)[:5000], chance), 1)
        self._replace(path, content, lambda: formats.read_idx(path))

    def archives(self, chance: random.Random) -> None:
        content = io.BytesIO()
        how = chance.choice(["gz", "bz2", "xz", ""])
        with tarfile.open(fileobj=content, mode=f"w:{how}") as tar:  # type: ignore[call-overload]
            info = tarfile.TarInfo(chance.choice(["cifar/a.bin", "../a.bin", "cifar/./a.bin"]))
            info.size = 100
            tar.addfile(info, io.BytesIO(bytes(100)))
        path = Path("archive.tar.gz")
        path.write_bytes(bytes_from(content.getvalue(), chance))
        file = File("a.bin", 100, digest(bytes(100)))
        out = Path(".dprepro/archives")
        out.mkdir(parents=True, exist_ok=True)
        sources.extract(path, Archive(file, "cifar", ()), [file], out)

    def own_files(self, chance: random.Random) -> None:
        """An npz that no numpy wrote, and what is no file on a disk."""
        shutil.rmtree("brought", ignore_errors=True)
        folder = Path("brought/a")
        folder.mkdir(parents=True)
        place = folder.parent / "mine.npz"
        if chance.random() < 0.3:
            special = folder / "0.png" if chance.random() < 0.5 else place
            make: list[Callable[[Path], object]] = [os.mkfifo, lambda path: path.symlink_to("/dev/zero")]
            make += [
                lambda path: path.symlink_to(path.name),
                lambda path: path.mkdir(),
                lambda path: path.touch(),
            ]
            chance.choice(make)(special)
        else:
            how = chance.choice(
                [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
            )
            with zipfile.ZipFile(place, "w", how) as file:
                for name, array in (
                    ("inputs", np.zeros((120, 8, 8), np.uint8)),
                    ("labels", np.arange(120) % 3),
                ):
                    content = project.npy(array)
                    if chance.random() < 0.3:
                        content = bytes_from(content, chance)
                    file.writestr(name + chance.choice([".npy", ".npy", ".npy", "", ".NPY", "/"]), content)
            if chance.random() < 0.6:
                place.write_bytes(bytes_from(place.read_bytes(), chance))
        kind, path = ("npz", place) if place.exists() or place.is_symlink() else ("images", folder.parent)
        describe("mine", kind, {"path": path.as_posix()})

    def accounting(self, chance: random.Random) -> None:
        """Numbers at the edge; whatever is answered, what is shown is not above what is proven."""
        examples = chance.choice([1, 2, 1000, 60_000, 2**31, 10**12])
        given = {
            "examples": examples,
            "batch": chance.choice([1, 2, examples // 2, examples - 1, examples, examples + 1]),
            "steps": chance.choice([0, 1, 2, 1000, 10**6, 10**9, 10**12]),
            "delta": chance.choice([0, 5e-324, 1e-300, 1e-15, 1e-14, 1e-5, 0.5, 1 - 1e-16, 1]),
            "sampling": chance.choice(["poisson", "fixed", "shuffled"]),
        }
        sigma = chance.choice([0, 5e-324, 1e-6, 0.1, 1.1, 100, 1e6, 1e308])
        own = dpsgd_settings(sigma, **given)
        ledger = make_ledger(spending_of(own), own.total_steps, own.delta, own.claimed_by)
        if ledger.epsilon_upper is not None and ledger.epsilon_lower is not None:
            assert ledger.epsilon_lower <= ledger.epsilon_upper, (
                sigma,
                given,
                ledger.epsilon_lower,
                ledger.epsilon_upper,
            )

    def arguments(self, chance: random.Random) -> None:
        command = chance.choice(
            [["tan", "plan"], ["tan", "scale"], ["account"], ["plan"], ["pack"], ["adopt"], ["fetch"],
             ["prepare"], ["train"], ["evaluate"], ["ledger"], ["start"], ["relevance"],
             ["search"], ["identity"], ["epsilon"], ["compare"], ["verify"], ["new", "row"],
             ["new", "data"], []]
        )  # fmt: skip
        options = ["--examples", "--delta", "--epsilon", "--steps", "--compute", "--copies", "--simulate",
                   "--batch", "-o", "--device", "--physical", "--without-weights", "--json", "--mirror",
                   "--jobs", "--data", "--checkpoint-every"]  # fmt: skip
        words = ["", "small", "none", "-1", "0", "1", "1e-300", "1e308", "nan", "inf", "9" * 30, "../x",
                 "\x1b[2J", "ü" * 200, ".", "/", "params.yaml", "small.dprepro.tar.gz",
                 "cuda:99", "meta"]  # fmt: skip
        given = list(command)
        if command == ["tan", "plan"] and chance.random() < 0.7:
            for option in ("--examples", "--delta", "--epsilon", "--steps"):
                given += [option, chance.choice(["50000", "1e-6", "8", "100", *words])]
        else:
            for _ in range(chance.randint(0, 4)):
                given.append(chance.choice(options if chance.random() < 0.5 else words))
        if given[:2] in (["train", "small"], ["evaluate", "small"], ["fetch", "mnist"]):
            given = [*given[:1], "other"]
        with pytest.MonkeyPatch.context() as patch:
            # nothing is downloaded, and what is written is put elsewhere
            patch.setattr("pipeline.data.sources.download", _no_network)
            try:
                app(given)
            except SystemExit as end:
                if end.code not in (0, 1, 2, None):
                    raise AssertionError(f"status {end.code}") from end


def _no_network(*_: object) -> None:
    raise UserError("no network")


def tried(kind: Callable[[random.Random], None], seed: int) -> str | None:
    """One input; None where it ended as it may, else what went wrong."""
    try:
        with limited(), open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
            kind(random.Random(seed))
    except UserError as problem:
        return None if str(problem) else "an empty line"
    except Hang:
        return "hang"
    except Exception:
        return "traceback: " + traceback.format_exc()
    return None


assert catalog.catalog(), "what archives are of"
