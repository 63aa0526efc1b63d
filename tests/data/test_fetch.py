"""`fetch`: the same raw folder from every source, or one line that names what is wrong."""

import io
import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.data import catalog, transfer
from pipeline.data.catalog import Archive, Edition, File
from pipeline.data.fetch import DOWNLOADS, fetch
from pipeline.data.raw import RAW
from pipeline.errors import UserError
from pipeline.files import digest_file

OFFICIAL = {"kind": "official"}


def pack(archive: Path, folder: Path, inside: str, extra: list[tarfile.TarInfo] | None = None) -> File:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as tar:
        for member in extra or []:
            tar.addfile(member, io.BytesIO(b"evil") if member.isfile() else None)
        for path in sorted(folder.iterdir()):
            tar.add(path, f"{inside}/{path.name}")
    return File(archive.name, archive.stat().st_size, digest_file(archive))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_official_mirror_and_archive_give_the_same_folder(small, params, server, tmp_path):
    entry, published = small("cifar10")
    inside = "cifar-10-batches-bin"
    file = pack(tmp_path / "pub/cifar-10-binary.tar.gz", published, inside)
    address = server.add(tmp_path / "pub", "kriz") + file.name
    edition = replace(entry.editions["official"], archives=(Archive(file, inside, (address,)),))
    catalog.catalog()["cifar10"] = replace(entry, editions={"official": edition})  # undone with the fixture's

    results = {
        "official": fetch("cifar10", params(OFFICIAL), tmp_path / "a"),
        "members": fetch("cifar10", params({"kind": "mirror", "folder": str(published)}), tmp_path / "b"),
        "archive": fetch("cifar10", params(OFFICIAL), tmp_path / "c", folder=tmp_path / "pub"),
    }
    assert len(server.requests) == 1
    folders = [content(each.folder) for each in results.values()]
    assert folders[0] == folders[1] == folders[2]
    assert set(folders[0]) == {file.name for file in edition.files} | {"source.json"}
    source = json.loads(folders[0]["source.json"])
    assert source == {"data": "cifar10", "edition": "official", "files": results["official"].files}


def test_downloads_survive_what_dvc_does_to_outs(small, params, server, tmp_path):
    _, published = small("mnist", bases=(f"{server.address}/here/",))
    server.add(published, "here")
    first = fetch("mnist", params(OFFICIAL), tmp_path)
    shutil.rmtree(first.folder)
    assert fetch("mnist", params(OFFICIAL), tmp_path) == first
    assert len(server.requests) == 4
    assert (tmp_path / DOWNLOADS / "mnist").is_dir()


def test_an_archive_is_the_second_way_when_files_fail(small, params, server, tmp_path):
    entry, published = small("ag-news", bases=(f"{server.address}/gone/",))
    file = pack(tmp_path / "pub/ag_news_csv.tgz", published, "ag_news_csv")
    archive = Archive(file, "ag_news_csv", (server.add(tmp_path / "pub", "fast") + file.name,))
    edition = replace(entry.editions["official"], archives=(archive,))
    catalog.catalog()["ag-news"] = replace(entry, editions={"official": edition})
    assert content(fetch("ag-news", params(OFFICIAL), tmp_path).folder).keys() >= {"train.csv", "test.csv"}


def test_no_address_works(small, params, server, tmp_path):
    small("mnist", bases=(f"{server.address}/one/", f"{server.address}/two/"))
    with pytest.raises(UserError) as caught:
        fetch("mnist", params(OFFICIAL), tmp_path)
    line = str(caught.value)
    assert "\n" not in line
    assert "MNIST" in line
    assert "/one/train-images-idx3-ubyte.gz: 404" in line
    assert "/two/train-images-idx3-ubyte.gz: 404" in line
    assert "--mirror" in line
    assert not (tmp_path / RAW / "mnist").exists()


def test_a_hostile_archive_writes_nothing_but_the_catalogued_members(small, tmp_path):
    entry, published = small("cifar10")
    link = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    outside = tarfile.TarInfo("../outside")
    outside.size = 4
    path = tmp_path / "in" / "evil.tar.gz"
    file = pack(path, published, "./cifar-10-batches-bin", [link, outside])
    target = tmp_path / "in" / "target"
    target.mkdir()
    files = entry.editions["official"].files
    transfer.extract(path, Archive(file, "cifar-10-batches-bin", ()), files, target)
    assert content(target) == content(published)
    assert not (tmp_path / "in" / "outside").exists()


def test_archives_that_are_cut_or_lack_a_member(small, tmp_path):
    entry, published = small("cifar10")
    files = entry.editions["official"].files
    (published / "test_batch.bin").unlink()
    path = tmp_path / "a.tar.gz"
    archive = Archive(pack(path, published, "bin"), "bin", ())
    with pytest.raises(UserError, match=r"a\.tar\.gz: lacks bin/test_batch\.bin"):
        transfer.extract(path, archive, files, tmp_path)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(UserError, match=r"a\.tar\.gz: truncated or corrupt"):
        transfer.extract(path, archive, files, tmp_path)


@pytest.mark.parametrize("place", ["", "mnist", "MNIST/raw"])
def test_mirror_layouts(small, params, tmp_path, place):
    _, published = small("mnist")
    shutil.copytree(published, tmp_path / "mirror" / place, dirs_exist_ok=True)
    done = fetch("mnist", params(OFFICIAL), tmp_path, folder=tmp_path / "mirror")
    assert done.edition == "official"
    assert content(done.folder).items() >= content(published).items()


def test_mirror_with_a_wrong_and_a_missing_file_and_no_mirror(small, params, tmp_path):
    _, published = small("mnist")
    settings = params({"kind": "mirror", "folder": str(published)})
    wrong = published / "t10k-labels-idx1-ubyte.gz"
    good = wrong.read_bytes()
    wrong.write_bytes(good[:-1] + b"x")
    with pytest.raises(
        UserError, match=r"t10k-labels-idx1-ubyte\.gz: not the file of MNIST: sha256:\w+ instead of"
    ):
        fetch("mnist", settings, tmp_path)
    wrong.write_bytes(good[:-1])
    with pytest.raises(UserError, match=r"t10k-labels-idx1-ubyte\.gz: not the file .* bytes instead of"):
        fetch("mnist", settings, tmp_path)
    wrong.unlink()
    with pytest.raises(
        UserError, match=r"lacks t10k-labels-idx1-ubyte\.gz of MNIST; looked in its \., mnist"
    ):
        fetch("mnist", settings, tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        fetch("mnist", settings, tmp_path, folder=tmp_path / "nowhere")
    assert not list((tmp_path / RAW).iterdir())


def test_other_editions_are_taken_only_by_name(small, params, server, tmp_path):
    entry, published = small("cifar100")
    official = entry.editions["official"]
    other = Edition(official.train, official.test, note="in another order")
    missing = replace(official, train=replace(official.train, files=(File("train.bin", 1, "sha256:0"),)))
    catalog.catalog()["cifar100"] = replace(entry, editions={"official": missing, "reordered": other})
    folder = {"kind": "mirror", "folder": str(published)}
    with pytest.raises(UserError) as caught:
        fetch("cifar100", params(folder), tmp_path)
    assert "edition 'reordered' of CIFAR-100, not official (in another order)" in str(caught.value)
    assert "set raw.cifar100.edition: reordered in params.yaml" in str(caught.value)

    assert (
        fetch("cifar100", params(folder, cifar100={"edition": "reordered"}), tmp_path).edition == "reordered"
    )
    with pytest.raises(UserError, match="this edition is not published anywhere"):
        fetch("cifar100", params(OFFICIAL, cifar100={"edition": "reordered"}), tmp_path)
    with pytest.raises(
        UserError, match=r"raw\.cifar100\.edition: 'mine' is not known; allowed: official, reordered"
    ):
        fetch("cifar100", params(folder, cifar100={"edition": "mine"}), tmp_path)


def test_synthetic_ignores_a_mirror_and_needs_counts(params, tmp_path):
    assert fetch("mnist", params(), tmp_path, folder=tmp_path / "nowhere").edition == "synthetic"
    with pytest.raises(UserError, match=r"raw\.mnist\.test: missing; source 'synthetic' needs a count"):
        fetch("mnist", params(mnist={"train": 5}), tmp_path)


def test_a_failed_fetch_leaves_the_old_folder_and_no_rubbish(small, params, tmp_path):
    _, published = small("mnist")
    settings = params({"kind": "mirror", "folder": str(published)})
    before = content(fetch("mnist", settings, tmp_path).folder)
    (published / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError):
        fetch("mnist", settings, tmp_path)
    assert content(tmp_path / RAW / "mnist") == before
    assert [path.name for path in (tmp_path / RAW).iterdir()] == ["mnist"]


def test_a_folder_that_can_not_be_written(small, params, tmp_path):
    _, published = small("mnist")
    # Root may write anywhere, so a file in the way stands for a folder that can't be written.
    (tmp_path / "data").write_text("")
    with pytest.raises(UserError, match=r"data.*: can't be written: Not a directory"):
        fetch("mnist", params({"kind": "mirror", "folder": str(published)}), tmp_path)
