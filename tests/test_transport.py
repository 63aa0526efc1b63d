import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline import params
from pipeline.data.prepared import PREPARED, SPLITS
from pipeline.errors import UserError
from pipeline.files import digest, digest_file, write_json
from pipeline.identity import provenance
from pipeline.params import Settings
from pipeline.results import records
from pipeline.transport import Adopted, adopt, archive, dvclock, pack, packing

ROW = "toy-row"
TUNED = "tuned-row"  # on weights of `before`
NAME = "rows.dprepro.tar.gz"
PARAMS = {
    "raw": {"mnist": {}, "kmnist": {}},
    "data": {
        name: {"raw": raw, "train": 8, "validation": 2, "public": {"raw": "kmnist", "count": 2}}
        for name, raw in (("toy", "mnist"), ("open", "kmnist"))
    },
    "starts": {"tuned": {"data": "toy", "row": "before"}},
    "rows": {
        row: {
            "paper": "toy",
            "table": "t1",
            "label": "Toy",
            "data": data,
            "model": {"name": "lenet5"},
            "method": "dpsgd",
            "seeds": 1,
            "reproducible": False,
            "settings": {"batch": 4, "epochs": 1, "learning_rate": 0.5},
            "levels": [{"epsilon": 3}],
        }
        for row, data in ((ROW, "toy"), ("before", "open"), (TUNED, "tuned"))
    },
}


def parsed(**changes: object) -> Settings:
    """Settings of the toy row, some of them changed."""
    raw = json.loads(json.dumps(PARAMS))
    raw["rows"][ROW]["settings"].update(changes)
    return params.parse(raw)


def prepare(root: Path, fill: int = 0, name: str = "toy") -> dict[str, str]:
    """Lay out prepared data as `dprepro prepare` does, and return its digests."""
    folder = root / PREPARED / name
    folder.mkdir(parents=True, exist_ok=True)
    digests = {}
    for split in SPLITS:
        for kind in ("inputs", "labels"):
            np.save(folder / f"{split}.{kind}.npy", np.full((2, 1), fill))
            digests[f"{split}.{kind}"] = digest_file(folder / f"{split}.{kind}.npy")
    write_json(folder / "manifest.json", {"digests": digests, "classes": ["a", "b"]})
    return digests


def train(root: Path, name: str = ROW) -> None:
    """Leave behind what train and evaluate leave behind."""
    run = root / archive.RUNS / name
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "weights.pt").write_bytes(b"weights")
    history = records.history_path(name, root)
    history.parent.mkdir(parents=True, exist_ok=True)
    history.write_text(",".join(records.HISTORY_COLUMNS) + "\n")
    made = parsed()
    row = made.rows[name]
    records.write(
        records.Record(
            row=name,
            paper=row.paper,
            table=row.table,
            label=row.label,
            data=row.data,
            model=row.model.model_dump(),
            method=row.method,
            budget=row.budget,
            search=None,
            replicas=[],
            history=digest_file(history),
            provenance=records.Provenance(
                config=made.row_digest(name),
                code=provenance.code_digest(row.method, row.model.name),
                revision=None,
                dirty=None,
                data=prepare(root, name=row.data),
                examples=8,
                edition={},
                versions={},
                device="cpu",
                reproducible=False,
                command=f"dprepro train {name}",
            ),
        ),
        root,
    )


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine that trained; the current folder."""
    folder = tmp_path / "away"
    folder.mkdir()
    train(folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A checkout with the same data, where nothing has been trained."""
    folder = tmp_path / "home"
    prepare(folder)
    return folder


@pytest.fixture
def bring(away: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Adopted]]:
    """Pack away, then adopt at home, as one."""

    def run(weights: bool = True, here: Settings | None = None) -> list[Adopted]:
        pack(parsed(), [ROW], home / NAME, weights)
        monkeypatch.chdir(home)
        return adopt(here or parsed(), Path(NAME))

    return run


def placed(root: Path) -> list[str]:
    """Results that lie in a checkout, and anything half done."""
    folders = [root / "reports", root / archive.RUNS, root / ".dprepro"]
    return sorted(
        path.relative_to(root).as_posix()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    )


ALL = [
    f"reports/histories/{ROW}.csv",
    f"reports/records/{ROW}.json",
    f"runs/{ROW}/run.json",
    f"runs/{ROW}/weights.pt",
]


def test_same_input_gives_the_same_bytes(away: Path) -> None:
    pack(parsed(), [ROW], away / "one.tar.gz")
    (away / archive.RUNS / ROW / "run.json").touch()
    pack(parsed(), [ROW, ROW], away / "two.tar.gz")
    assert digest_file(away / "one.tar.gz") == digest_file(away / "two.tar.gz")


def test_a_row_comes_home_and_says_from_where(bring: Callable[..., list[Adopted]], home: Path) -> None:
    (adopted,) = bring()
    assert adopted.row == ROW
    assert "no DVC here" in adopted.notes[0]
    assert placed(home) == ALL
    record = records.read(ROW, home)
    assert record is not None
    assert record.provenance.adopted == f"{NAME} ({digest_file(home / NAME)})"


def test_adopting_again_replaces_what_was_there(bring: Callable[..., list[Adopted]], home: Path) -> None:
    (home / archive.RUNS / ROW).mkdir(parents=True)
    (home / archive.RUNS / ROW / "stale").touch()
    bring()
    assert placed(home) == ALL
    adopt(parsed(), Path(NAME))
    assert placed(home) == ALL


def test_without_weights(bring: Callable[..., list[Adopted]], home: Path) -> None:
    (adopted,) = bring(weights=False)
    assert "without weights" in adopted.notes[-1]
    assert placed(home) == ALL[:-1]


def test_other_settings_are_refused_by_key(bring: Callable[..., list[Adopted]], home: Path) -> None:
    with pytest.raises(UserError, match=r"settings: rows\.toy-row\.settings\.batch is 4 there, 2 here$"):
        bring(here=parsed(batch=2))
    assert placed(home) == []


def test_other_data_is_refused_by_array(bring: Callable[..., list[Adopted]], home: Path) -> None:
    prepare(home, fill=1)
    with pytest.raises(UserError, match=r"data 'toy': public\.inputs; public\.labels; test"):
        bring()
    assert placed(home) == []


def test_other_code_is_refused_by_file(
    bring: Callable[..., list[Adopted]], home: Path, away: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(parsed(), [ROW], home / NAME)
    changed = [path for path in provenance.sources("dpsgd", "lenet5") if path.name != "lenet5.py"]
    monkeypatch.setattr(provenance, "sources", lambda method, model: changed)
    monkeypatch.chdir(home)
    with pytest.raises(UserError, match=r"other code: pipeline/models/lenet5\.py$"):
        adopt(parsed(), Path(NAME))
    assert placed(home) == []


def test_a_row_unknown_here_is_refused(bring: Callable[..., list[Adopted]], home: Path) -> None:
    with pytest.raises(UserError, match="no row 'toy-row'"):
        bring(here=params.parse({**PARAMS, "starts": {}, "rows": {}}))
    assert placed(home) == []


def test_data_not_prepared_here_is_said(away: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    pack(parsed(), [ROW], bare / NAME)
    monkeypatch.chdir(bare)
    (adopted,) = adopt(parsed(), Path(NAME))
    assert "could not be compared" in adopted.notes[0]
    assert placed(bare) == ALL


@pytest.mark.parametrize(
    ("row", "name", "stage"), [(ROW, "toy", "prepare@toy"), (TUNED, "tuned", "start@tuned")]
)
def test_data_not_prepared_here_is_compared_by_lock(
    away: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, name: str, stage: str
) -> None:
    if row != ROW:
        train(away, row)
    bare = tmp_path / "bare"
    bare.mkdir()
    entry = {f"train@{row}": {"deps": [{"path": f"data/prepared/{name}", "md5": "a.dir"}]}}
    monkeypatch.setattr(dvclock, "vouched", lambda stages: json.dumps(entry))  # which is YAML too
    pack(parsed(), [row], bare / NAME)
    monkeypatch.chdir(bare)

    def sign(md5: str) -> None:
        out = {"path": f"data/prepared/{name}", "md5": md5}
        (bare / "dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": {stage: {"outs": [out]}}}))

    sign("b.dir")
    with pytest.raises(UserError, match=rf"data '{name}': its digest in dvc\.lock"):
        adopt(parsed(), Path(NAME))
    assert placed(bare) == []
    sign("a.dir")
    (adopted,) = adopt(parsed(), Path(NAME))
    assert not any("compared" in note for note in adopted.notes)


def test_a_tuned_row_comes_home(away: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(away, TUNED)
    pack(parsed(), [ROW, TUNED], home / NAME)
    monkeypatch.chdir(home)
    prepare(home, fill=1, name="tuned")
    with pytest.raises(
        UserError, match=r"^tuned-row: not adopted: made from other data 'tuned': public\.inputs"
    ):
        adopt(parsed(), Path(NAME))
    assert placed(home) == []
    prepare(home, name="tuned")
    assert [adopted.row for adopted in adopt(parsed(), Path(NAME))] == [ROW, TUNED]


@pytest.mark.parametrize(("row", "command"), [(ROW, "prepare toy"), (TUNED, "start tuned")])
def test_the_command_that_is_missing_is_named(
    away: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, command: str
) -> None:
    if row != ROW:
        train(away, row)
    pack(parsed(), [row], tmp_path / NAME)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dvclock, "available", lambda: True)
    (adopted,) = adopt(parsed(), Path(NAME))
    assert f"`dprepro {command}` and adopt again" in adopted.notes[1]


def test_a_tuned_row_stands_on_its_pretraining_too() -> None:
    parts = packing.behind(parsed(), TUNED)
    assert parts["starts.tuned.row"] == "before"
    assert parts["data.toy.raw"] == "mnist"
    assert parts["data.open.raw"] == "kmnist"
    assert parts["rows.before.settings.batch"] == 4
    assert {f"raw.{name}.edition" for name in ("mnist", "kmnist")} <= parts.keys()
    assert not any(key.startswith("data.tuned") for key in parts)
    assert "rows.before.settings.batch" not in packing.behind(parsed(), ROW)


def test_another_pretraining_is_refused_by_key(
    away: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(away, TUNED)
    pack(parsed(), [TUNED], home / NAME)
    monkeypatch.chdir(home)
    raw = json.loads(json.dumps(PARAMS))
    raw["rows"]["before"]["settings"]["batch"] = 2
    with pytest.raises(UserError, match=r"settings: rows\.before\.settings\.batch is 4 there, 2 here$"):
        adopt(params.parse(raw), Path(NAME))


def test_failure_on_the_way_leaves_what_was_there(
    bring: Callable[..., list[Adopted]], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = records.path(ROW, home)
    old.parent.mkdir(parents=True)
    old.write_text("old")
    rename = Path.rename

    def full(self: Path, target: Path) -> Path:
        if target == archive.RUNS / ROW:
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(UserError, match="No space left on device"):
        bring()
    assert placed(home) == [ALL[1]]
    assert old.read_text() == "old"


@pytest.mark.parametrize("kind", ["settings", "code"])
def test_stale_results_are_not_packed(away: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = parsed(batch=2) if kind == "settings" else parsed()
    if kind == "code":
        monkeypatch.setattr(provenance, "code_digest", lambda method, model: "sha256:other")
    with pytest.raises(UserError, match=f"other {kind}"):
        pack(here, [ROW], away / NAME)
    assert not (away / NAME).exists()


@pytest.mark.parametrize("path", [ALL[0], ALL[1], ALL[3]])
def test_a_missing_result_is_named(away: Path, path: str) -> None:
    (away / path).unlink()
    with pytest.raises(UserError, match=path):
        pack(parsed(), [ROW], away / NAME)


class Forged:
    """A pack of good files, whose members and manifest can be tampered with."""

    def __init__(self, good: Path) -> None:
        with tarfile.open(good) as tar:
            self.members = {item.name: self.content(tar, item) for item in tar.getmembers()}
        self.manifest = json.loads(self.members.pop(archive.MANIFEST))
        self.files = self.manifest["rows"][ROW]["files"]

    @staticmethod
    def content(tar: tarfile.TarFile, item: tarfile.TarInfo) -> bytes:
        file = tar.extractfile(item)
        assert file is not None
        return file.read()

    def put(self, name: str, content: bytes) -> None:
        """Add a file, with its right digest in the manifest."""
        self.members[name] = content
        self.files[name] = digest(content)

    def write(self, target: Path, *extra: tarfile.TarInfo) -> Path:
        with tarfile.open(target, "w:gz") as tar:
            for name, content in {
                archive.MANIFEST: json.dumps(self.manifest).encode(),
                **self.members,
            }.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            for info in extra:
                tar.addfile(info)
        return target


@pytest.fixture
def forged(away: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Forged:
    pack(parsed(), [ROW], home / NAME)
    monkeypatch.chdir(home)
    return Forged(home / NAME)


@pytest.mark.parametrize(
    "name",
    [
        "/tmp/evil",
        "../evil",
        f"runs/{ROW}/../../../evil",
        f"runs/{ROW}/./evil",
        f"runs/{ROW}",
        "runs/other/evil",
        "reports/records/other.json",
        "params.yaml",
    ],
)
def test_only_a_rows_own_files_are_taken(forged: Forged, home: Path, name: str) -> None:
    forged.put(name, b"evil")
    with pytest.raises(UserError, match="is not a file of row"):
        adopt(parsed(), forged.write(home / NAME))
    assert placed(home) == []
    assert not (home.parent / "evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_and_devices_are_refused(forged: Forged, home: Path, kind: bytes) -> None:
    link = tarfile.TarInfo(f"runs/{ROW}/link")
    link.type, link.linkname = kind, "/etc/passwd"
    forged.files[link.name] = digest(b"")
    with pytest.raises(UserError, match="is not a plain file"):
        adopt(parsed(), forged.write(home / NAME, link))
    assert placed(home) == []


def test_damage_is_refused(forged: Forged, home: Path) -> None:
    forged.members[f"runs/{ROW}/weights.pt"] = b"changed"
    with pytest.raises(UserError, match=r"weights\.pt is not what its digest says"):
        adopt(parsed(), forged.write(home / NAME))

    del forged.members[f"runs/{ROW}/weights.pt"]
    with pytest.raises(UserError, match=r"weights\.pt is missing"):
        adopt(parsed(), forged.write(home / NAME))

    forged.members["extra"] = b""
    with pytest.raises(UserError, match="'extra' is not in its manifest"):
        adopt(parsed(), forged.write(home / NAME))
    assert placed(home) == []


def test_what_is_not_a_pack_is_refused(forged: Forged, home: Path) -> None:
    whole = (home / NAME).read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2], gzip.compress(b""), gzip.compress(b"x" * 2000)):
        (home / NAME).write_bytes(content)
        with pytest.raises(UserError, match="not a pack, or damaged"):
            adopt(parsed(), home / NAME)
    with pytest.raises(UserError, match="can't be read: No such file"):
        adopt(parsed(), home / "missing.tar.gz")
    assert placed(home) == []


def test_a_record_of_another_history_is_refused(forged: Forged, home: Path) -> None:
    forged.put(f"reports/histories/{ROW}.csv", b"other")
    with pytest.raises(UserError, match="another history"):
        adopt(parsed(), forged.write(home / NAME))
    assert placed(home) == []
