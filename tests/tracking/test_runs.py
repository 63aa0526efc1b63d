"""MLflow's store as a view of the table of results: runs, view, replacement, and its server."""

import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from dprepro.errors import UserError
from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting import table
from dprepro.pipeline.reporting.table import read_sources
from dprepro.pipeline.results.schema import Record
from dprepro.pipeline.tracking import views
from dprepro.pipeline.tracking.publishing import STORE, address, publish
from dprepro.pipeline.tracking.runs import RunSpec, canonical, runs
from dprepro.stages.ui import ui
from tests.commands import forked, heed_ctrl_c
from tests.refusal import refusal_of
from tests.reporting.made_up import dpsgd as example


@pytest.fixture
def port() -> int:
    """One that is free, and below those that the system gives to others before it is used."""
    first = 20_000 + os.getpid() % 10_000
    for number in range(first, first + 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", number)):
            return number
    raise AssertionError("no port is free")


def answers(address: str, process: subprocess.Popen) -> None:
    """Wait until a server does."""
    until = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
            return
        except OSError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < until
            time.sleep(0.2)


def small(key: str, declared: Settings) -> Record:
    """A row's record with two levels and three seeds."""
    record = example.record(key, declared)
    kept = tuple(
        training
        for training in record.trainings
        if training.level in ("epsilon=inf", "epsilon=3") and training.seed < 3
    )
    return record.model_copy(update={"trainings": kept})


METRICS = {"accuracy_percent", "paper_percent", "difference", "epsilon_upper", "epsilon_lower"}
PARENT = "mlflow.parentRunId"
ONE = RunSpec("davody2020", "a result", {"judged": "true"}, {}, [("accuracy_percent", 97.5, 0)], 1.0, 2.0)


@dataclass(frozen=True)
class Store:
    root: Path
    specs: list[RunSpec]
    experiments: dict[str, str]

    def runs(self, wanted: str = "") -> list[Run]:
        client = MlflowClient(address(self.root / STORE))
        order = ["tags.`table` ASC"]
        return list(client.search_runs([self.experiments["davody2020"]], wanted, order_by=order))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Two rows of the made-up paper, in a store."""
    root, settings = tmp_path_factory.mktemp("store"), example.settings()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for key in (example.LAYER, example.LITERAL):
            example.put(small(key, settings), root)
        specs = list(runs(read_sources(settings)))
        yield Store(root, specs, publish(specs))


def test_a_result_is_a_run_with_its_seeds_below(store: Store) -> None:
    found = table.results(read_sources(example.settings(), store.root))
    ran = found[found["ours"].notna()]
    assert len(ran) == 4  # two rows at two levels
    every = store.runs()
    results = {place(run): run for run in every if PARENT not in run.data.tags}
    assert results.keys() == {*zip(ran["row"], ran["level"], strict=True)}
    for line in ran.to_dict("records"):
        run = results[line["row"], line["level"]]
        assert run.data.metrics["accuracy_percent"] == round(line["ours"], 2)
        upper = run.data.metrics.get("epsilon_upper")
        exact = float(f"{line['epsilon_upper']:.9g}")
        assert exact <= upper <= 1.01 * exact if upper else pd.isna(exact)  # rounded up to three digits
        below = [each for each in every if each.data.tags.get(PARENT) == run.info.run_id]
        assert all(each.info.run_name.startswith(f"{run.info.run_name}, seed ") for each in below)
        shown = {int(each.data.tags["seed"]): each.data.metrics["accuracy_percent"] for each in below}
        assert shown == {seed: round(value, 2) for seed, value in line["by_seed"].items()}
        assert len(shown) == 3


def place(run: Run) -> tuple[str, str]:
    return run.data.tags["row"], run.data.tags["level"]


def test_the_view_shows_judged_results_only_with_their_numbers(store: Store) -> None:
    judged = store.runs(views.FILTER)
    assert judged
    for run in judged:
        assert run.data.tags["status"] in ("reproduced", "higher", "lower", "uncertain")
        assert {"accuracy_percent", "paper_percent", "difference"} <= run.data.metrics.keys() <= METRICS
        assert run.data.tags.keys() >= {"table", "line", "level", "planned"}
        assert not {tag for tag in run.data.tags if "reproducible" in tag}
    state = json.loads(views.tags()["mlflow.sharedViewState.judged"])
    assert {column.split("`")[1] for column in state["selectedColumns"]} == METRICS | {
        *("table", "line", "level", "status", "planned")
    }
    assert state["searchFilter"] == views.FILTER


def test_what_others_put_into_a_store_is_gone_after_the_next_build(store: Store, tmp_path: Path) -> None:
    path = tmp_path / STORE
    experiments = publish([ONE], path)
    client = MlflowClient(address(path))
    made_up = client.create_run(
        experiments["davody2020"], tags={"judged": "true", "table": "a"}, run_name="made up"
    )
    client.log_metric(made_up.info.run_id, "accuracy_percent", 99.9)
    client.create_experiment("made up")
    assert publish([ONE], path) == experiments
    # under another name, because MLflow keeps files open
    client = MlflowClient(address(path.rename(tmp_path / "built.db")))
    assert [run.info.run_name for run in client.search_runs(list(experiments.values()))] == ["a result"]
    assert "made up" not in {experiment.name for experiment in client.search_experiments()}


def left(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(".py")}


def killed() -> int:
    publish([ONE], show=lambda name: os.kill(os.getpid(), signal.SIGKILL))
    return 0


def on_a_full_disk() -> int:
    """0 where that is told in one line."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # bytes of any file
    with pytest.raises(UserError, match=r"^mlflow\.db: [^\n]*$"):
        publish([ONE])
    return 0


def test_a_full_disk_or_a_kill_leaves_the_old_store_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    publish([ONE])
    before = left(tmp_path)
    assert forked(killed) != 0
    assert left(tmp_path) == before
    assert forked(on_a_full_disk) == 0
    assert left(tmp_path) == before


def test_a_seed_has_its_curves_and_more_points_than_mlflow_takes_at_once_in_a_folder_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that a URL takes for something else."""
    (folder := tmp_path / "50 % of what? #1").mkdir()
    monkeypatch.chdir(folder)
    points = [("train_loss", float(step), step) for step in range(2500)]
    seed = replace(ONE, name="a result, seed 0", metrics=[*points, ("accuracy_percent", 97.0, 0)])
    experiments = publish([replace(ONE, seeds=(seed,))])
    with closing(sqlite3.connect(folder / STORE)) as asked:
        assert asked.execute("SELECT count(*) FROM runs").fetchone() == (2,)
    client = MlflowClient(address())
    (run,) = client.search_runs(list(experiments.values()), "attributes.run_name = 'a result, seed 0'")
    assert len(client.get_metric_history(run.info.run_id, "train_loss")) == 2500
    assert (run.info.start_time, run.info.end_time) == (1000, 2000)


def test_settings_are_found_as_one_types_them(store: Store) -> None:
    assert store.runs("params.method = 'dpsgd' and params.neighbouring != ''")
    assert [canonical(value) for value in (3.0, 1e-5, float("inf"), "Infinity", True, None, 0.1)] == [
        *("3", "1e-5", "inf", "inf", "true", "null", "0.1")
    ]


def test_ui_publishes_says_where_and_ends_quietly(tmp_path: Path, port: int) -> None:
    settings = example.settings()
    example.put(small(example.LAYER, settings), tmp_path)
    # JSON is YAML
    (tmp_path / "params.yaml").write_text(settings.model_dump_json(exclude_none=True))
    command = [sys.executable, "-c", f"from dprepro.stages.ui import ui; ui(port={port}, host='127.0.0.1')"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )
    page = f"http://127.0.0.1:{port}"
    try:
        answers(page, process)
        asked = json.dumps({"experiment_ids": ["1"], "filter": views.FILTER}).encode()
        request = urllib.request.Request(
            f"{page}/api/2.0/mlflow/runs/search", asked, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert len(json.load(answer)["runs"]) == 2
        said = refusal_of(lambda: ui(port=port, host="127.0.0.1"))
        assert said.startswith(f"127.0.0.1:{port}: can't serve there: Address already in use")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does at Ctrl-C
        said, noise = process.communicate(timeout=60)
    finally:
        process.terminate()
        process.wait(60)
    assert process.returncode == 0
    assert "Traceback" not in noise
    assert "mlflow.db: 2 results and 6 seeds" in said
    assert f"davody2020: {page}/#/experiments/1/runs?viewStateShareKey=judged" in said
