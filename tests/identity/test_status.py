"""What stands and what there is to do, in few lines: of records that are there, lack parts or changed."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dprepro.pipeline import params
from dprepro.pipeline.identity.plan import rows_to_train
from dprepro.pipeline.identity.status import Status, lines, status
from dprepro.pipeline.identity.validity import reason_invalid
from dprepro.pipeline.params import Model
from dprepro.pipeline.results import records
from dprepro.stages.app import app
from tests.made_records import made_up_origin, made_up_training
from tests.reporting.made_up import dpsgd

ROOT = Path(__file__).parents[2]


def test_each_row_is_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dpsgd.fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    changes: dict[str, dict[str, Any]] = {
        dpsgd.PUBLIC: {"needs": "gpu", "seeds": 9},
        dpsgd.LITERAL: {"reproducible": True},
    }
    declared = dpsgd.settings(**changes)
    records.evaluation_path(dpsgd.LAYER).unlink()
    overview = status(declared, gpu=False)
    assert dpsgd.PLAIN in overview.stand
    assert overview.waiting == (dpsgd.PUBLIC,)
    assert overview.untrained == (dpsgd.MISSING,)
    assert overview.changed == {"settings": (dpsgd.LITERAL,)}
    assert overview.unmeasured == (dpsgd.LAYER,)
    told = list(lines(overview))
    assert told[0] == "1 row with valid results"
    assert f"1 waiting for a GPU: {dpsgd.PUBLIC}" in told
    assert f"1 changed (settings): {dpsgd.LITERAL}" in told


def test_expected_times_are_those_of_the_row_or_of_an_epoch_of_its_network_and_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dpsgd.fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    declared = dpsgd.settings(
        **{dpsgd.LAYER: {"settings": {"batch": 1024, "epochs": 80, "learning_rate": 0.5}}}
    )
    planned = {each.row: each.seconds for each in rows_to_train(declared, gpu=True)}
    # three seeds of 8 epochs ran in each span of 100 seconds; those of LAYER are declared with 80 now
    of_an_epoch = 100 / 3 * (3 / 8 + 1 / 80) / 4
    assert planned[dpsgd.LAYER] == pytest.approx(21 * 100 / 3)
    assert planned[dpsgd.MISSING] == pytest.approx(21 * 8 * of_an_epoch)


def test_the_laboratorys_own_is_told_in_twenty_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row of it, and what training is planned for is in it as `dprepro plan` has it."""
    monkeypatch.chdir(ROOT)
    declared = params.load()
    overview = status(declared, gpu=False)
    assert len(list(lines(overview))) <= 19  # and one that says what does it
    assert all(len(line) < 300 for line in lines(overview))
    todo = {
        *overview.waiting,
        *overview.untrained,
        *(key for keys in overview.changed.values() for key in keys),
    }
    assert todo == {each.row for each in rows_to_train(declared, gpu=False)}
    assert todo | {*overview.stand, *overview.unmeasured, *overview.unaccounted} == declared.rows.keys()


def test_a_run_stands_wherever_the_files_of_its_public_weights_lie() -> None:
    """They have a digest; another training would spend again what the first one spent."""
    network = {
        **{"architecture": "resnet18", "weights": "net.pth", "digest": "sha256:" + 64 * "0"},
        **{"source": "example.org", "licence": "BSD-3-Clause", "trained_on": "ImageNet"},
    }
    row = dpsgd.settings().rows[dpsgd.PLAIN]
    row = row.model_copy(update={"model": Model.model_validate({"name": "pretrained", "network": network})})
    settings = row.resolved[0]
    ran = made_up_training(
        None,
        1,
        level=row.level(settings),
        seed=row.trainings[0][1],
        settings=settings.model_dump(mode="json"),
        model=row.model.model_dump(mode="json"),
        method=row.method,
        data=row.data,
        origin=made_up_origin(reproducible=row.reproducible),
    )
    for changes, reason in (({"weights": "elsewhere/net.pth"}, None), ({"size": 64}, "settings")):
        moved = Model.model_validate({"name": "pretrained", "network": network | changes})
        assert reason_invalid(ran, row.model_copy(update={"model": moved}), None, None, code=False) == reason


@pytest.mark.parametrize(
    ("accounts", "last"), [((1, 1), "nothing to do here"), ((0, 1), "`dprepro repro [ROW]` does it")]
)
def test_a_missing_account_is_something_to_do(
    monkeypatch: pytest.MonkeyPatch, accounts: tuple[int, int], last: str
) -> None:
    summary = Status((), (), (), {}, (), (), accounts)
    monkeypatch.setattr("dprepro.pipeline.identity.status.status", lambda settings, gpu: summary)
    assert CliRunner().invoke(app, ["status"], catch_exceptions=False).output.strip().endswith(last)
