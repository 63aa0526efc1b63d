import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline import params
from pipeline.data.prepared import PREPARED, SPLITS
from pipeline.errors import UserError
from pipeline.files import digest_file, write_json, write_text
from pipeline.identity import versions
from pipeline.params import Settings
from pipeline.privacy.accounting import noise_for
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.results import records, schema
from pipeline.results.histories import history_csv, read_history
from pipeline.results.weights import weights_path, write_weights
from pipeline.transport import Adopted, adopt, archive, dvclock, pack
from tests.there import there

ROW = "toy-row"
NAME = "rows.dprepro.tar.gz"
PARAMS = {
    "raw": {"mnist": {}, "kmnist": {}},
    "data": {
        "toy": {"raw": "mnist", "train": 8, "validation": 2, "public": {"raw": "kmnist", "count": 2}},
    },
    "rows": {
        ROW: {
            "paper": "toy",
            "table": "t1",
            "label": "Toy",
            "data": "toy",
            "model": {"name": "lenet5"},
            "method": "dpsgd",
            "seeds": 1,
            "reproducible": False,
            "settings": {"batch": 4, "epochs": 1, "learning_rate": 0.5},
            "levels": [{"epsilon": 3}],
        }
    },
}


def parsed(seeds: int = 1, **changes: object) -> Settings:
    """Settings of the toy row, some of them changed."""
    raw = json.loads(json.dumps(PARAMS))
    raw["rows"][ROW]["seeds"] = seeds
    raw["rows"][ROW]["settings"].update(changes)
    return params.parse(raw)


def prepare(root: Path, fill: int = 0) -> dict[str, str]:
    """Lay out prepared data as `dprepro prepare` does, and return its digests."""
    folder = root / PREPARED / "toy"
    folder.mkdir(parents=True, exist_ok=True)
    digests = {}
    for split in SPLITS:
        for kind in ("inputs", "labels"):
            np.save(folder / f"{split}.{kind}.npy", np.full((2, 1), fill))
            digests[f"{split}.{kind}"] = digest_file(folder / f"{split}.{kind}.npy")
    write_json(folder / "manifest.json", {"digests": digests, "classes": ["a", "b"]})
    return digests


SPENDING = SampledGaussian(
    sampling="poisson", noise_multiplier=noise_for(3.0, 1e-5, 0.5, 2, "rdp"), examples=8, batch=4
)


def train(root: Path, made: Settings | None = None, seeds: tuple[int, ...] = (0,)) -> None:
    """Leave behind what training and measuring leave behind, of these seeds."""
    made = made or parsed()
    row, data = made.rows[ROW], prepare(root)
    (settings,) = row.resolved
    level, weights = row.level(settings), {}
    for seed in seeds:
        path = weights_path(ROW, level, seed, root)
        weights[seed] = write_weights(path, {"weight": torch.full((3,), float(seed))})
    history = records.history_path(ROW, root)
    write_text(history, history_csv([(level, seed, 2, 1.0, "train_loss", seed) for seed in seeds]))
    origin = schema.Provenance(
        config=made.row_digest(ROW),
        made_by=versions.training(row.method, row.model.name),
        revision=None,
        dirty=None,
        data=data,
        examples=8,
        edition={},
        versions={},
        device="cpu",
        reproducible=False,
        command=f"dprepro train {ROW}",
    )
    replicas = tuple(
        schema.Trained(
            level=level,
            seed=seed,
            settings=settings.model_dump(mode="json"),
            steps=2,
            spending=SPENDING,
            delta=1e-5,
            claimed_by="rdp",
            broken=(),
            not_covered=(),
            weights=weights[seed],
            seconds=1,
            started=0,
            ended=1,
            origin=0,
        )
        for seed in seeds
    )
    run = schema.Run(
        row=ROW,
        model=row.model.model_dump(mode="json"),
        method=row.method,
        data=row.data,
        replicas=replicas,
        origins=(origin,),
        history=digest_file(history),
    )
    records.write(run, root)
    measured = tuple(
        schema.Evaluated(
            level=level,
            seed=seed,
            weights=weights[seed],
            measured_by=versions.MEASURING,
            metrics={"test_accuracy": 0.5 + seed / 10},
        )
        for seed in seeds
    )
    records.write(schema.Evaluation(row=ROW, replicas=measured), root)


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


RUN, HISTORY = f"reports/runs/{ROW}.json", f"reports/histories/{ROW}.csv"
MEASURED, LEDGERS = f"reports/evaluations/{ROW}.json", f"reports/ledgers/{ROW}.json"
WEIGHTS = f"runs/{ROW}/epsilon=3,seed=0.safetensors"
ALL = sorted([RUN, HISTORY, MEASURED, LEDGERS, WEIGHTS])


def test_same_input_gives_the_same_bytes(away: Path) -> None:
    pack(parsed(), [ROW], away / "one.tar.gz")
    (away / RUN).touch()
    pack(parsed(), [ROW, ROW], away / "two.tar.gz")
    assert digest_file(away / "one.tar.gz") == digest_file(away / "two.tar.gz")


def test_a_row_comes_home_and_says_from_where(
    bring: Callable[..., list[Adopted]], home: Path, away: Path
) -> None:
    (adopted,) = bring()
    assert (adopted.row, adopted.replicas) == (ROW, 1)
    assert "no DVC pipeline here" in adopted.notes[0]
    assert placed(home) == ALL
    record = there(records.read(ROW, parsed().rows[ROW], home))
    assert record.provenance.adopted == f"{NAME} ({digest_file(home / NAME)})"
    for path in (HISTORY, MEASURED, WEIGHTS):
        assert (home / path).read_bytes() == (away / path).read_bytes()
    # accounted for here, from what ran there
    ledger = record.replicas[0].ledger
    assert (ledger.noise_multiplier, ledger.steps) == (SPENDING.noise_multiplier, 2)
    assert ledger.epsilon_upper == ledger.spent[-1][1] or ledger.epsilon_upper < ledger.spent[-1][1]


def test_adopting_again_changes_nothing(bring: Callable[..., list[Adopted]], home: Path) -> None:
    bring()
    before = {path: (home / path).read_bytes() for path in ALL}
    (adopted,) = adopt(parsed(), Path(NAME))
    assert adopted.replicas == 0
    assert {path: (home / path).read_bytes() for path in placed(home)} == before


def test_replicas_of_two_machines_are_one_row(
    bring: Callable[..., list[Adopted]], away: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds 0 and 1 were trained here, 1 and 2 there: 1 stands, and 2 is taken."""
    train(home, parsed(2), seeds=(0, 1))
    kept = {path: path.read_bytes() for path in (home / "runs").rglob("*.safetensors")}
    train(away, parsed(3), seeds=(1, 2))
    measured = there(records.read_evaluation(ROW, away))
    other = measured.replicas[0].model_copy(update={"metrics": {"test_accuracy": 0.0}})
    records.write(measured.model_copy(update={"replicas": (other, *measured.replicas[1:])}), away)
    pack(parsed(3), [ROW], home / NAME)
    monkeypatch.chdir(home)
    (adopted,) = adopt(parsed(3), Path(NAME))
    assert adopted.replicas == 1
    record = there(records.read(ROW, parsed(3).rows[ROW], home))
    assert [one.seed for one in record.replicas] == [0, 1, 2]
    assert [record.origins[one.origin].adopted is None for one in record.replicas] == [True, True, False]
    assert [one.metrics["test_accuracy"] for one in record.replicas] == [0.5, 0.6, 0.7]
    assert all(one.ledger.epsilon_upper is not None for one in record.replicas)
    assert {path: path.read_bytes() for path in kept} == kept
    assert (home / f"runs/{ROW}/epsilon=3,seed=2.safetensors").exists()
    lines = read_history(records.history_path(ROW, home))
    assert [(seed, value) for _, seed, *_, value in lines] == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert record.history == digest_file(records.history_path(ROW, home))


def test_a_row_is_signed_once_all_its_replicas_are_here(
    away: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DVC would take it for done before that, and train no more of it."""
    signed: list[list[str]] = []

    def sign(_: Settings, rows: list[str]) -> bool:
        signed.append(rows)
        return True

    monkeypatch.setattr(dvclock, "sign", sign)
    for seed in (0, 1):
        shutil.rmtree(away / "runs", ignore_errors=True)
        train(away, parsed(2), seeds=(seed,))
        pack(parsed(2), [ROW], home / NAME)
        monkeypatch.chdir(home)
        (adopted,) = adopt(parsed(2), Path(NAME))
        assert adopted.replicas == 1
        assert any("still to be trained" in note for note in adopted.notes) == (seed == 0)
        monkeypatch.chdir(away)
    assert signed == [[], [ROW]]


def test_what_was_made_from_something_else_is_refused(
    bring: Callable[..., list[Adopted]], away: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = params.parse({**PARAMS, "rows": {}})
    for here, said in ((parsed(batch=2), "made from other settings$"), (empty, f"no row '{ROW}'")):
        with pytest.raises(UserError, match=said):
            bring(here=here)
        monkeypatch.chdir(away)
    run = there(records.read_run(ROW, away))
    measured = there(records.read_evaluation(ROW, away))
    late = measured.replicas[0].model_copy(update={"measured_by": 0})
    records.write(measured.model_copy(update={"replicas": (late,)}), away)
    made = run.origins[0].model_copy(update={"made_by": {"method": 0, "model": 1}})
    records.write(run.model_copy(update={"origins": (made,)}), away)
    with pytest.raises(UserError, match=rf"^{ROW}: not adopted: made from other measuring version, method"):
        bring()
    monkeypatch.chdir(away)
    records.write(run, away)
    records.write(measured, away)
    prepare(home, fill=1)
    with pytest.raises(UserError, match=r"made from other data$"):
        bring()
    assert placed(home) == []


def test_without_weights(bring: Callable[..., list[Adopted]], home: Path) -> None:
    (adopted,) = bring(weights=False)
    assert "without weights" in adopted.notes[-1]
    assert placed(home) == [path for path in ALL if path != WEIGHTS]


@pytest.mark.parametrize("path", [RUN, HISTORY, MEASURED, WEIGHTS])
def test_failure_on_the_way_leaves_what_was_there(
    bring: Callable[..., list[Adopted]], home: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    train(home, parsed(batch=2))
    before = {path: (home / path).read_bytes() for path in placed(home)}
    replace = os.replace

    def full(source: Path, target: Path) -> None:
        if Path(target) == Path(path) and "replaced" not in Path(source).parts:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match="No space left on device"):
        bring()
    assert {path: (home / path).read_bytes() for path in placed(home)} == before


@pytest.mark.parametrize("path", [RUN, HISTORY, MEASURED, WEIGHTS])
def test_a_missing_result_is_named(away: Path, path: str) -> None:
    (away / path).unlink()
    with pytest.raises(UserError, match=path):
        pack(parsed(), [ROW], away / NAME)
