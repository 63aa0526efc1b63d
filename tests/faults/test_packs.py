"""Packs of somebody who wants more than to bring a row home: nothing of them is placed."""

import gzip
import io
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from dprepro.errors import UserError
from dprepro.pipeline.files import digest
from dprepro.pipeline.results import records
from dprepro.pipeline.results.weights import weights_path
from dprepro.pipeline.transport.adopting import adopt
from dprepro.pipeline.transport.archive import pack
from tests.faults.project import PACK, PARAMS, ROW, edited, settings

RUN, MEASURED = records.run_path(ROW).as_posix(), records.evaluation_path(ROW).as_posix()
WEIGHTS = weights_path(ROW, "epsilon=3", 0).as_posix()
Members = dict[str, bytes]
MANY = {"schema_version": 4, "row": ROW, "trainings": 10**18, "spent": None}


@pytest.fixture(autouse=True)
def nothing_is_placed(workspace: Path) -> Iterator[None]:
    """In the project without its results."""
    shutil.rmtree("reports")
    shutil.rmtree("runs")
    yield
    assert not Path("reports").exists()
    assert not Path("runs").exists()
    assert not list(Path(".dprepro").glob(".adopt*"))
    assert not (workspace.parent / "evil").exists()


def as_it_is(_: Members) -> None:
    """Change nothing."""


def repack(change: Callable[[Members], object] = as_it_is, *more: tarfile.TarInfo) -> None:
    """Change the members of the pack, and add empty ones."""
    with tarfile.open(PACK) as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}
    change(members)
    with tarfile.open(PACK, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in more:
            tar.addfile(member)


def refused(line: str, change: Callable[[Members], object] = as_it_is, *more: tarfile.TarInfo) -> None:
    """Make sure that a changed pack is refused with this line."""
    repack(change, *more)
    with pytest.raises(UserError, match=line) as problem:
        adopt(settings(), PACK)
    assert ".partial" not in str(problem.value), "the pack is named, not a temporary folder"


def with_record(members: Members, name: str, place: str, value: Any) -> None:
    members[name] = edited(name, members[name].decode(), place, value).encode()


@pytest.mark.parametrize(
    ("name", "place", "value", "line"),
    [
        (MEASURED, "trainings/0/metrics/test_accuracy", 7.5, "allowed: 0 to 1"),
        (MEASURED, "trainings/0/seed", 1, "accuracies of other weights than ran, or missing"),
        (RUN, "trainings", [], "all of its trainings are replaced ones"),
        (RUN, "trainings", lambda first: [*first, first[0] | {"started": 0}], "two trainings of"),
        (RUN, "trainings", lambda first: [*first, MANY], "trainings: "),
        (RUN, "trainings/0/ended", 0.0, "allowed: at most 'ended'"),
        (RUN, "trainings/0/spending/noise_multiplier", 99.0, "noise_multiplier: not what its"),
        (RUN, "trainings/0/steps", 1, "steps: not what its settings come to"),
        (RUN, "trainings/0/weights", f"sha256:{0:064}", "of other weights than ran, or missing"),
        (RUN, "trainings/0/origin/examples", 10**6, "another number of examples"),
        (RUN, "trainings/0/level", "../../evil", r"level: .*allowed: the name of a level"),
        (RUN, "trainings/0/broken", [{"key": "no"}], "broken: not what its settings come to"),
        (RUN, "trainings/0/not_covered", [], "not_covered lacks 'curves': not what its settings"),
        (MEASURED, "trainings/0/metrics/validation_accuracy", 1.0, "its training curve ends at"),
    ],
)
def test_what_can_not_be_is_refused(name: str, place: str, value: Any, line: str) -> None:
    refused(line, lambda members: with_record(members, name, place, value))


@pytest.mark.parametrize(
    "name",
    [
        *("/tmp/evil", "../evil", f"runs/{ROW}/../../../evil", f"runs/{ROW}/./evil", f"runs/{ROW}"),
        *("runs/other/evil", "runs/other/evil.safetensors", "reports/evaluations/other.jsonl"),
        *(f"reports/ledgers/{ROW}.json", "reports/runs/other.json", "dvc.lock"),
    ],
)
def test_only_a_rows_own_files_are_taken(name: str) -> None:
    refused("is not a file of (a row|its rows)", lambda members: members.update({name: b"evil"}))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_and_devices_are_refused(kind: bytes) -> None:
    link = tarfile.TarInfo(f"runs/{ROW}/link.safetensors")
    link.type, link.linkname = kind, "/etc/passwd"
    refused("is not a plain file", as_it_is, link)


def test_a_sparse_file_is_refused_before_its_holes_fill_the_disk() -> None:
    sparse = tarfile.TarInfo(f"runs/{ROW}/link.safetensors")
    # the present form of GNU's sparse files: no content, and a hole of this size
    sparse.pax_headers = {"GNU.sparse.size": str(1 << 30), "GNU.sparse.map": f"{1 << 30},0"}
    refused("is not a plain file", as_it_is, sparse)


def test_other_weights_than_were_trained_are_refused() -> None:
    refused(
        "its weights are not the ones that were trained",
        lambda members: members.update({WEIGHTS: members[WEIGHTS][:-1] + b"x"}),
    )


def saved(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], bytes]:
    def content(path: Path) -> bytes:
        tensors = safetensors.torch.load_file(path)
        change(tensors)
        return safetensors.torch.save(tensors)

    return content


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (lambda _: pickle.dumps({"weight": 1}), "seed 0: no weights: "),
        (saved(lambda x: x[min(x)].fill_(torch.nan)), "seed 0: the weights are not finite: "),
        (saved(lambda x: x.pop(min(x))), "seed 0: the weights are another network's: "),
        (saved(lambda x: x.update({min(x): x[min(x)].double()})), "the weights are another network's: "),
        (saved(lambda x: x.update({str(n): torch.ones(1) for n in range(99)})), "is not of it"),
    ],
)
def test_weights_of_no_such_network_are_refused(
    made: Path, content: Callable[[Path], bytes], line: str
) -> None:
    """Also where the run and the evaluation vouch for them."""
    forged = content(made / WEIGHTS)

    def changed(members: Members) -> None:
        members[WEIGHTS] = forged
        for name in (RUN, MEASURED):
            with_record(members, name, "trainings/0/weights", digest(forged))

    refused(line, changed)


def test_one_network_is_not_two_seeds() -> None:
    def changed(members: Members) -> None:
        for name in (RUN, MEASURED):
            with_record(members, name, "trainings", lambda first: [*first, first[0] | {"seed": 1}])
        members[WEIGHTS.replace("seed=0", "seed=1")] = members[WEIGHTS]

    Path("params.yaml").write_text(PARAMS.replace("seeds: 1", "seeds: 2"))
    refused("epsilon=3, seed 1: has the weights of epsilon=3, seed 0", changed)


def test_another_rows_search_is_refused(made: Path) -> None:
    search = records.search_path("quick").as_posix()
    theirs = (made / search).read_text().replace(f'"row": "{ROW}"', '"row": "other"')
    refused("is not a search of its rows", lambda members: members.update({search: theirs.encode()}))


def test_a_forged_search_is_refused_where_there_is_none() -> None:
    search, place = records.search_path("quick").as_posix(), "candidates/0/spent/spending/noise_multiplier"
    line = "spent: not what its settings come to"
    refused(line, lambda members: with_record(members, search, place, 99.0))


def test_a_row_without_accuracies_is_refused() -> None:
    refused("small.jsonl is missing", lambda members: members.pop(MEASURED))


def test_a_pack_is_unpacked_only_as_far_as_it_may_be() -> None:
    refused("unpacks to far more than it holds", lambda members: members.update({WEIGHTS: bytes(70 << 20)}))
    assert PACK.stat().st_size < 1 << 20


def test_what_is_not_a_pack_is_refused() -> None:
    whole = PACK.read_bytes()
    with tarfile.open(PACK, "w:gz"):
        pass
    with pytest.raises(UserError, match="not a pack, or damaged: it has no row"):
        adopt(settings(), PACK)
    for content in (b"", b"text", whole[: len(whole) // 2], gzip.compress(b""), gzip.compress(b"x" * 2000)):
        PACK.write_bytes(content)
        with pytest.raises(UserError, match="not a pack, or damaged"):
            adopt(settings(), PACK)
    os.unlink(PACK)
    with pytest.raises(UserError, match="can't be read: No such file"):
        adopt(settings(), PACK)
    with pytest.raises(UserError, match="is a folder"):
        pack(settings(), [ROW], Path())
