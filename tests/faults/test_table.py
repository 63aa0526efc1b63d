"""What once did not hold, a test each."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from dprepro.errors import Unproven, UserError
from dprepro.pipeline import verification
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.prepare import prepare
from dprepro.pipeline.files import digest_file, temporary_path, write_text, writing
from dprepro.pipeline.identity import entries, provenance
from dprepro.pipeline.ledgers import sentences
from dprepro.pipeline.ledgers.compared import _same_spending
from dprepro.pipeline.ledgers.rows import row_ledgers
from dprepro.pipeline.methods.base import CPU
from dprepro.pipeline.methods.private_steps import PrivateSteps
from dprepro.pipeline.params import Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import RowTrainings, TrainingRecord, TrainingSpent
from dprepro.pipeline.results.weights import weights_path, write_weights
from dprepro.pipeline.training import evaluation
from dprepro.pipeline.training.checkpoints import checkpoint_lock
from dprepro.pipeline.transport import dvclock
from dprepro.stages.app import app
from dprepro.stages.report import report_left_out
from tests.docs.blocks import edit as change
from tests.faults import project
from tests.faults.project import ROW, edit, settings

RUN, MEASURED, LEDGER = (
    path(ROW) for path in (records.run_path, records.evaluation_path, records.ledger_path)
)
TOLD_LESS = {
    "epsilon": 1.0, "delta": 1e-3, "neighbouring": "add or remove one", "by": "pld", "trainings": 2,
    "searched": 0, "left_out": 0,
}  # fmt: skip

RISK = {
    "tpr_at_1_percent": 0.02, "tpr_at_01_percent": 0.002, "advantage": 0.1, "mu": 0.2, "least_rate": 0.0,
    "regret": None,
}  # fmt: skip


def twice(lines: list[Any]) -> list[Any]:
    """Lines with another one of the same level and seed, as after a merge of two machines' results."""
    other: dict[str, Any] = (
        {"started": 0.0}
        if "started" in lines[0]
        else {"metrics": {"test_accuracy": 0.0}}
        if "metrics" in lines[0]
        else {}
    )
    return [*lines, lines[0] | other]


def wrong(declared: Settings | None = None) -> dict[str, str]:
    """What `dprepro verify` says is wrong, by its subject."""
    checks = verification.verify(declared or settings())
    return {check.subject: check.wrong for check in checks if check.wrong is not None}


def test_a_lock_that_dvc_did_not_write_is_one_line(workspace: Path) -> None:
    for content in ("stages: [x]", "stages: {a: 3}", "- 1", "stages: {a: {outs: [3]}}"):
        dvclock.LOCK.write_text(content)
        with pytest.raises(UserError, match=r"dvc\.lock"):
            list(dvclock.Lock().changed())


def test_an_accounts_ledger_that_says_of_no_training_and_its_run_are_one_line(workspace: Path) -> None:
    ledger, account = records.ledger_path("counted"), settings().accounts["counted"]
    kept = ledger.read_bytes()
    for place, value in (
        ("entries", []),
        ("entries/0/settings", ...),
        ("entries/0/settings/examples", -3),
    ):
        edit(ledger, place, value)
        with pytest.raises(
            UserError, match=r"counted\.json: not an account's; run `dprepro account counted`"
        ):
            records.read("counted", account)
        ledger.write_bytes(kept)
    run = records.run_path("counted")
    run.write_text(RUN.read_text().replace(f'"row":"{ROW}"', '"row":"counted"'))
    with pytest.raises(UserError, match=r"counted\.jsonl: counted is an account, which leaves no run"):
        records.read("counted", account)


def test_another_rows_weights_are_not_evaluated(workspace: Path) -> None:
    path = weights_path(ROW, "epsilon=3", 0)
    write_weights(path, {"w": torch.full((3,), float("nan"))})
    MEASURED.unlink()
    with pytest.raises(UserError, match="is not what training left"):
        project.evaluate()
    # nor are they where the run vouches for them
    edit(RUN, "trainings/0/weights", digest_file(path))
    with pytest.raises(UserError, match="the weights are another network's"):
        project.evaluate()


def test_one_network_is_not_two_seeds(workspace: Path) -> None:
    """Copied with its curve and its accuracies, under other metadata, and signed anew."""
    change(workspace / "params.yaml", "seeds: 1", "seeds: 2")
    path, other = (weights_path(ROW, "epsilon=3", seed) for seed in (0, 1))
    safetensors.torch.save_file(safetensors.torch.load_file(path), other, {"seed": "1"})
    copied = {"seed": 1, "weights": digest_file(other)}
    for record in (RUN, MEASURED):
        edit(record, "trainings", lambda first: [*first, first[0] | copied])
    row_ledgers(ROW, settings())
    assert "epsilon=3, seed 1: has the weights of epsilon=3, seed 0" in wrong()[ROW]
    other.write_bytes(b"none")
    for record in (RUN, MEASURED):
        edit(record, "trainings/1/weights", digest_file(other))
    row_ledgers(ROW, settings())
    assert "seed=1.safetensors: no weights: not in the format" in wrong()[ROW]


def test_a_run_that_says_another_noise_has_no_ledger(workspace: Path) -> None:
    before = records.ledger_path(ROW).read_bytes()
    edit(RUN, "trainings/0/spending/noise_multiplier", lambda noise: 10 * noise)
    with pytest.raises(UserError, match="noise_multiplier: not what its settings come to"):
        row_ledgers(ROW, settings())
    assert records.ledger_path(ROW).read_bytes() == before
    # and the one there is is not read beside it
    with pytest.raises(UserError, match="accounts for another training"):
        records.read(ROW, settings().rows[ROW])


@pytest.mark.parametrize(
    ("path", "place", "value", "said"),
    [
        (MEASURED, "trainings/0/schema_version", ..., "schema_version: missing"),
        (MEASURED, "trainings", twice, "the same one twice"),
        (RUN, "trainings", twice, "two trainings of epsilon=3, seed 0; allowed: one that is not"),
        (LEDGER, "entries", twice, "the same training twice"),
        (RUN, "trainings/0/row", "../../x", "row: "),
        (RUN, "trainings/0/origin/versions/torch", "<script>alert(1)</script>", "versions.torch"),
        (LEDGER, "entries/0/ledger/accountants/0/epsilon", -1, "accountants.0.epsilon"),
        (LEDGER, "entries/0/ledger/epsilon_upper", 0.01, "ledger"),
    ],
)
def test_what_no_command_writes_is_one_line_for_every_reader(
    workspace: Path, path: Path, place: str, value: Any, said: str
) -> None:
    edit(path, place, value)
    readers = (
        lambda: records.read(ROW, settings().rows[ROW]),  # `report` and `publish`
        lambda: row_ledgers(ROW, settings()) if path == RUN else records.read(ROW, settings().rows[ROW]),
        lambda: project.evaluate() if path == MEASURED else records.read(ROW, settings().rows[ROW]),
    )
    for read in readers:
        with pytest.raises(UserError, match=re.escape(str(path))) as caught:
            read()
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        assert str(caught.value).isprintable()
    assert any(str(path) in said for said in wrong().values())


@pytest.mark.parametrize(
    ("path", "place", "value", "said"),
    [
        (RUN, "trainings/0/settings/learning_rate", 0.1, "epsilon=3, seed 0: settings: not what"),
        (RUN, "trainings/0/origin/data/train.inputs", f"sha256:{0:064}", "0: data: not"),
        (RUN, "trainings/0/spending", None, "seed 0: spending: not what its settings"),
        (
            RUN,
            "trainings/0/not_covered",
            [{"key": "curves"}, {"key": "made_up"}],
            "not_covered has 'made_up'",
        ),
        (RUN, "trainings/0/protects", {"key": "made_up"}, "seed 0: protects: not what its settings"),
        (MEASURED, "trainings/0/metrics/validation_accuracy", 1.0, "is 1, and its training curve ends at"),
        (MEASURED, "trainings/0/metrics/validation_accuracy", ..., "validation_accuracy is missing"),
        (LEDGER, "entries/0/ledger/claimed", 0.5, "claimed is not what is computed"),
        (LEDGER, "entries/0/level", "epsilon=4", "epsilon=3, seed 0: missing"),
        (LEDGER, "composition", TOLD_LESS, "composition is not what is computed"),
        (LEDGER, "entries/0/seeds", [0, 5], "epsilon=3, seed 5: nothing ran"),
        (LEDGER, "entries/0/ledger/risk", RISK, "epsilon=3, seed 0: risk"),
        (LEDGER, "entries/0/ledger/accountants", [], "accountants: pld (dp-accounting): missing"),
        (LEDGER, "entries/0/ledger/accountants/0/epsilon", 0.1, "accountants.rdp (dp-accounting"),
        (
            LEDGER,
            "entries/0/ledger/accountants",
            lambda all_of_them: [*all_of_them, {"accountant": "ours (dp 1.0)", "epsilon": 0.1}],
            "accountants: 'ours (dp)': unknown",
        ),
    ],
)
def test_what_ran_or_is_accounted_for_otherwise_is_told(
    workspace: Path, path: Path, place: str, value: Any, said: str
) -> None:
    edit(path, place, value)
    told = wrong()
    assert told.keys() == {ROW}
    assert said in told[ROW]
    (quick,) = verification.verify(
        settings(), lines=[ROW]
    )  # without the accountants that take seconds to import
    assert said in quick.wrong


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("WINNER/validation_accuracy", [0.0], "chosen: 'epsilon=3': not the candidate with"),
        ("chosen/epsilon=3/learning_rate", 7.0, "chosen: 'epsilon=3': not the candidate"),
        ("chosen/epsilon=4", {"learning_rate": 7.0}, "chosen: 'epsilon=4': not the"),
        ("LOSER", ..., "1 candidates: not the 2 of params.yaml's grid"),
        ("LOSER/settings/learning_rate", 0.3, "not the 2 of params.yaml's grid"),
        ("LOSER", lambda x: x | {"seeds": 2, "validation_accuracy": [0, 0]}, "not the 2 of params.yaml's"),
        ("WINNER/validation_accuracy", [0.999], "validation_accuracy 0.999: not a share of 20"),
        ("candidates/0/spent/spending/noise_multiplier", 99.0, "spent: not what its"),
        ("candidates/0/spent", ..., "candidates.0: spent: not what its settings come to"),
        ("provenance/reproducible", False, "row or reproducible: not what params.yaml has"),
        ("name", "other", "name: other; allowed: quick"),
        # what nothing else vouches for is signed
        ("WINNER/validation_accuracy", [1.0], "not what dvc.lock has of ledger@small"),
        ("replaced", [{"trainings": 1, "spent": None}], "not what dvc.lock has of ledger@small"),
    ],
)
def test_a_forged_search_is_noticed(workspace: Path, place: str, value: Any, said: str) -> None:
    path, declared = records.search_path("quick"), settings()
    signature = {"ledger.small": entries.entries(declared)["ledger"][ROW]}
    entry = {"cmd": "x", "params": {entries.PATH.as_posix(): signature}}
    dvclock.LOCK.write_text(json.dumps({"schema": "2.0", "stages": {f"ledger@{ROW}": entry}}))
    # rows and accounts take longer, and are compared elsewhere
    declared = declared.model_copy(update={"accounts": {}})
    searches = [line for line in verification.verify(declared) if line.subject == f"{path}"]
    assert [(line.wrong, line.unchecked) for line in searches] == [(None, None)]
    accuracies = [each.validation_accuracy for each in records.read_search("quick").candidates]
    winner = accuracies.index(max(accuracies))
    for name, number in (("WINNER", winner), ("LOSER", 1 - winner)):
        place = place.replace(name, f"candidates/{number}")
    edit(path, place, value)
    assert said in wrong(declared)[f"{path}"]


def test_a_setting_that_the_rows_search_did_not_choose_is_noticed(workspace: Path) -> None:
    change(workspace / "params.yaml", "method: dpsgd", "method: dpsgd\n    search: quick")
    change(workspace / "params.yaml", "learning_rate: 0.5, delta", "learning_rate: 0.3, delta")
    assert (
        "learning_rate is 0.3 at 'epsilon=3', where search 'quick' chose"
        in (wrong()[f"{records.search_path('quick')}"])
    )


@pytest.mark.parametrize("change", [{"spending": 1.1}, {"steps": 2}, {"delta": 0.1}])
def test_the_spending_of_a_candidate_with_laplace_noise_is_compared_whole(change: dict[str, float]) -> None:
    spent = TrainingSpent(spending=1.0, steps=1, delta=0.0)
    assert _same_spending(spent, spent)
    assert not _same_spending(spent.model_copy(update=change), spent)


def test_two_searches_of_one_name_do_not_run_at_once(workspace: Path) -> None:
    """They would each replace the record of the other, and its spending."""
    change(workspace / "params.yaml", "learning_rate: [0.25, 0.5]", "learning_rate: [0.25, 0.4]")
    with (
        checkpoint_lock(records.CHECKPOINTS / "search-quick"),
        pytest.raises(UserError, match="another process"),
    ):
        project.search()


def made_on(run: Any, **changes: Any) -> RowTrainings:
    """A run whose trainings have another origin."""

    def changed(each: TrainingRecord) -> TrainingRecord:
        return each.model_copy(update={"origin": each.origin.model_copy(update=changes)})

    return run.model_copy(update={"trainings": tuple(map(changed, run.trainings))})


def test_a_plan_that_was_changed_after_a_training_is_noticed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the digest in the run, and, where that is forged too, by the commit that it names."""
    plan = {"seeds": 5, "margin": 1.0, "budget": "ours", "search": "none"}
    Path("params.yaml").write_text(f"plans:\n  davody2020-t5: {json.dumps(plan)}\n{project.PARAMS}")
    declared = settings()
    committed = Path("params.yaml").read_text()
    alone = committed.replace("    table: t5\n", "    table: t5\n    plan: davody2020-t5\n", 1)
    texts = {
        40 * "a": alone,
        40 * "b": committed,  # the row has no plan yet
        40 * "c": alone.replace("epochs: 1, learning", "epochs: 2, learning", 1),
        40 * "d": alone.replace("normalization: layer", "normalization: none", 1),
        40 * "e": alone.replace(f"  {ROW}:\n", "  earlier:\n", 1),
    }
    declared = declared.model_copy(
        update={"rows": {ROW: declared.rows[ROW].model_copy(update={"plan": "davody2020-t5"})}}
    )
    run = records.read_run(ROW)
    run = made_on(run, plan=declared.plan_digest(ROW), revision=40 * "a")
    # a laboratory's commits are not recorded
    unchecked = "order of plan 'davody2020-t5' and training: no commit of this params.yaml is recorded"
    assert verification.check_plan(ROW, run, declared) == unchecked
    monkeypatch.setattr(provenance, "PIPELINE", workspace / "pipeline")
    monkeypatch.setattr(provenance, "committed_text", lambda path, commit: texts[commit])
    monkeypatch.setattr(provenance, "last_commit", lambda revision, time: revision)
    assert verification.check_plan(ROW, run, declared) is None
    run_of_an_archive = made_on(run, revision=None)
    assert verification.check_plan(ROW, run_of_an_archive, declared) == unchecked
    # a resumed training may record a later commit, but its plan must be older than its start
    texts[40 * "f"] = alone
    for first in ("f", "b", None):  # the last commit when the training began
        commit = first and 40 * first
        monkeypatch.setattr(provenance, "last_commit", lambda revision, time, commit=commit: commit)
        if first == "f":
            assert verification.check_plan(ROW, run, declared) is None
            continue
        with pytest.raises(
            UserError, match=r"small\.jsonl: began before commit aaaaaaaa, which has plan 'davody"
        ):
            verification.check_plan(ROW, run, declared)
    monkeypatch.setattr(provenance, "last_commit", lambda revision, time: revision)
    # nor may the row come under its plan later, or with other settings
    for commit, where in (("b", ".plan"), ("c", ""), ("d", ".model"), ("e", "")):
        line = re.escape(f"rows.{ROW}{where}: not what it was in commit {8 * commit}")
        with pytest.raises(UserError, match=line):
            verification.check_plan(ROW, made_on(run, revision=40 * commit), declared)
    wider = declared.plans["davody2020-t5"].model_copy(update={"margin": 3.0})
    changed = declared.model_copy(update={"plans": {"davody2020-t5": wider}})
    with pytest.raises(
        UserError, match=r"plan 'davody2020-t5': not the one of params\.yaml that it was trained"
    ):
        verification.check_plan(ROW, run, changed)
    with pytest.raises(UserError, match=r"plans\.davody2020-t5: not what it was in commit aaaaaaaa"):
        verification.check_plan(ROW, made_on(run, plan=changed.plan_digest(ROW)), changed)


def test_weights_that_nobody_measured_are_told(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(MEASURED, "trainings/0/weights", f"sha256:{0:064}")
    report_left_out(settings())  # `report` and `publish`
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{MEASURED}: left out: epsilon=3, seed 0: ")
    assert ROW in wrong()


def measured_again() -> str:
    """What `dprepro evaluate ROW --again` says."""
    data = prepared.load(settings().rows[ROW].data)
    with pytest.raises(UserError) as refused:
        evaluation.compare(ROW, settings(), data, CPU)
    return str(refused.value)


def test_a_changed_accuracy_is_seen_where_the_weights_are(workspace: Path) -> None:
    evaluation.compare(ROW, settings(), prepared.load(settings().rows[ROW].data), CPU)
    whole = MEASURED.read_text()
    edit(MEASURED, "trainings/0/metrics/converged", ...)
    assert "converged is missing, and its weights reach" in measured_again()
    MEASURED.write_text(whole)
    edit(MEASURED, "trainings/0/metrics/test_accuracy", 0.99)
    assert "test_accuracy: is 0.99, and its predictions reach" in wrong()[ROW]
    edit(MEASURED, "trainings/0/test_errors", None)
    unchecked = {check.subject: check.unchecked for check in verification.verify(settings())}
    assert "--again" in str(unchecked[ROW])
    assert "predictions: 1 of " in str(unchecked[ROW])
    assert "test_accuracy is 0.99, and its weights reach" in measured_again()
    # accuracies of a seed that the row no longer has are left after `dprepro train`
    edit(MEASURED, "trainings", lambda old: [old[0] | {"seed": 1, "metrics": {"test_accuracy": 0.5}}, *old])
    assert "seed 0: test_accuracy is 0.99, and" in measured_again()
    whole = RUN.read_text()
    edit(RUN, "trainings/0/origin/data", lambda old: dict.fromkeys(old, f"sha256:{0:064}"))
    assert f"{RUN}: trained with other data than are here" in measured_again()
    RUN.write_text(whole)
    shutil.rmtree("runs")
    unchecked = {check.subject: check.unchecked for check in verification.verify(settings())}
    assert "weights are not here" in str(unchecked[ROW])
    assert "are not here" in measured_again()


def test_code_that_this_repository_has_not_is_told(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(RUN, "trainings/0/origin/revision", "0" * 40)
    monkeypatch.setattr(provenance, "is_lost", ("0" * 40).__eq__)  # whatever checkout the tests are in
    (line,) = verification.verify(settings(), lines=[ROW])
    assert "code: commit 00000000 is not in this repository" in line.unchecked
    done = CliRunner().invoke(app, ["verify", ROW], catch_exceptions=False)
    assert done.stdout.startswith(f"{ROW}: ok (not checked: ")
    assert done.stdout.endswith("1 compared, 0 wrong\n")


def test_rows_that_are_named_are_compared_alone(workspace: Path) -> None:
    edit(LEDGER, "entries/0/ledger/claimed", 0.5)
    (line,) = verification.verify(settings(), lines=[ROW])
    assert (line.subject, "claimed is not what is computed" in str(line.wrong)) == (ROW, True)
    (account,) = verification.verify(settings(), lines=["counted"])
    assert (account.subject, account.wrong) == ("counted", None)
    with pytest.raises(UserError, match="no row or account 'smal'; did you mean small"):
        list(verification.verify(settings(), lines=["smal"]))


def test_what_git_should_carry_and_is_gone_is_told(workspace: Path) -> None:
    paths = [f"{LEDGER}", f"runs/{ROW}"]  # weights may be elsewhere
    outs = [{"path": path, "hash": "md5", "md5": "0" * 32, "size": 1} for path in paths]
    other = {"ledger@other": {"cmd": "x", "outs": [{**outs[0], "path": "reports/ledgers/other.json"}]}}
    stages = {f"ledger@{ROW}": {"cmd": "x", "outs": outs}, **other}
    dvclock.LOCK.write_text(json.dumps({"schema": "2.0", "stages": stages}))
    LEDGER.unlink()
    shutil.rmtree(f"runs/{ROW}")
    for lines in ((), (ROW,)):
        findings = verification.verify(settings(), lines=lines)
        assert {line.subject: line.wrong for line in findings if line.wrong} == {
            f"{LEDGER}": f"is missing, which dvc.lock has of ledger@{ROW}"
        }


def test_a_failed_write_names_the_file_and_not_what_is_written_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UserError, match=f"^{re.escape(str(tmp_path))}/a.json: can't be written"):
        write_text(tmp_path / "a.json", "")
    with pytest.raises(UserError, match=r"^copy: can't be written"), writing(tmp_path):
        raise OSError(28, "No space left on device", "original", None, "copy")
    with (
        pytest.raises(
            UserError, match=r"can't be written: the disk may be full \(5 requested and 3 written\)$"
        ),
        writing(tmp_path),
    ):
        raise OSError("5 requested and 3 written")  # so numpy's `tofile`


def test_a_changed_curve_is_told_by_the_lock(workspace: Path) -> None:
    out = {"path": f"{RUN}", "hash": "md5", "md5": hashlib.md5(RUN.read_bytes()).hexdigest(), "size": 1}
    stages = {f"train@{ROW}": {"cmd": "x", "outs": [out]}}
    dvclock.LOCK.write_text(json.dumps({"schema": "2.0", "stages": stages}))
    assert f"{RUN}" not in wrong()
    edit(RUN, "trainings/0/curves/train_loss/0/2", 0.0)
    assert wrong()[f"{RUN}"] == f"is not what dvc.lock has of train@{ROW}"


def test_a_raised_accuracy_that_nothing_signs_is_told(workspace: Path) -> None:
    """The lock deleted, or one stage of it."""
    stages = {
        f"{stage}@{ROW}": {"outs": [{"path": f"{path}", "md5": hashlib.md5(path.read_bytes()).hexdigest()}]}
        for stage, path in (("train", RUN), ("evaluate", MEASURED), ("ledger", LEDGER))
    }

    def unchecked() -> str:
        (found,) = verification.verify(settings(), lines=[ROW])
        assert found.wrong is None
        return str(found.unchecked)

    dvclock.LOCK.write_text(json.dumps({"stages": stages}))
    assert "signature" not in unchecked()
    edit(MEASURED, "trainings/0", lambda old: old | {"test_errors": None})
    edit(MEASURED, "trainings/0/metrics/test_accuracy", 0.99)
    stages.pop(f"evaluate@{ROW}")
    dvclock.LOCK.write_text(json.dumps({"stages": stages}))
    assert f"signature: dvc.lock has no evaluate@{ROW}" in unchecked()
    dvclock.LOCK.unlink()
    assert f"signature: dvc.lock has no train@{ROW}, evaluate@{ROW}, ledger@{ROW}" in unchecked()


def left_by(process: int, path: Path) -> Path:
    """Temporary file beside a path, as a killed process leaves it."""
    left = Path(str(temporary_path(path)).replace(f"-{os.getpid()}.", f"-{process}."))
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"half")
    return left


def test_leftovers_of_the_dead_are_cleared_and_of_the_living_are_not(workspace: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for path in (MEASURED, Path("params.yaml")):
        left, other = left_by(dead.pid, path), left_by(os.getppid(), path)
        write_text(path, path.read_text())
        assert [each.exists() for each in (left, other)] == [False, True]


def test_what_was_being_replaced_comes_back(workspace: Path) -> None:
    folder = prepared.PREPARED / "mnist"
    before = digest_file(folder / "manifest.json")
    folder.rename(temporary_path(folder, "replaced"))
    prepare("mnist", settings())
    assert digest_file(folder / "manifest.json") == before
    assert [path.name for path in prepared.PREPARED.iterdir()] == ["mnist"]


def test_changed_data_are_told(workspace: Path) -> None:
    (prepared.PREPARED / "mnist/train.indices.npy").write_bytes(b"other")
    assert wrong().keys() == {"data/prepared/mnist"}


@pytest.fixture
def secret(workspace: Path) -> Path:
    """The params.yaml of rows that are not seeded."""
    declared = workspace / "params.yaml"
    change(declared, "reproducible: true", "reproducible: false")
    return declared


def stopped(work: Callable[[], object]) -> None:
    """Do what stops as examples meet."""
    meet = patch.object(PrivateSteps, "_compare_with_alone", side_effect=Unproven("step 0: examples meet", 1))
    with meet, pytest.raises(Unproven):
        work()


def test_a_training_that_stops_as_examples_meet_stays_in_the_rows_ledger(secret: Path) -> None:
    """It was secret and broke off: what it spent has no bound, also where the row had no record yet."""
    shutil.rmtree("reports")
    stopped(project.train)
    assert not RUN.exists()
    project.train()
    change(secret, "seeds: 1", "seeds: 2")
    stopped(project.train)
    (replaced,) = records.read_run(ROW).replaced
    assert (replaced.trainings, replaced.spent) == (2, None)
    # also one with other settings, where nothing is to train once the settings of before are back
    text = secret.read_text()
    secret.write_text(text.replace("learning_rate: 0.5", "learning_rate: 0.25"))
    stopped(project.train)
    secret.write_text(text.replace("seeds: 2", "seeds: 1"))
    project.train()
    (replaced,) = records.read_run(ROW).replaced
    assert (replaced.trainings, replaced.spent) == (3, None)
    row_ledgers(ROW, settings())
    composition: Any = records.read_ledgers(ROW).composition
    assert (composition.trainings, composition.left_out) == (1, 3)
    assert (
        "No bound is proven for 3 trainings, so none is proven for all trainings together"
        in sentences.composition(composition)
    )


def test_a_search_that_stops_as_examples_meet_stays_in_its_next_record(secret: Path) -> None:
    records.search_path("quick").unlink()
    stopped(project.search)
    project.search()
    (replaced,) = records.read_search("quick").replaced
    assert (replaced.trainings, replaced.spent) == (1, None)
