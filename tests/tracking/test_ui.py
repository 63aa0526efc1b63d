"""`dprepro ui` publishes, serves pages and other publishers, prints links, and ends quietly."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from dprepro.pipeline.tracking.publishing import publish
from dprepro.pipeline.tracking.store import STORE_ENV
from dprepro.stages.ui import ui
from tests.refusal import refusal_of
from tests.reporting.made_up import dpsgd as example
from tests.tracking.conftest import RUNS, answers, small
from tests.warm.commands import heed_ctrl_c


def test_a_server_ends_with_the_process_that_serves_even_where_that_is_killed() -> None:
    server = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]
    script = f"from dprepro.stages.ui import serve; serve({server!r}, dict(__import__('os').environ))"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    process.kill()
    assert process.stdout.read() == b""  # once the last that could write to it is gone
    process.wait()


def test_ui_publishes_serves_others_too_says_where_and_ends_quietly(
    root: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = example.settings()
    example.put(small(example.LAYER, settings), root)
    # JSON is YAML
    (root / "params.yaml").write_text(settings.model_dump_json(exclude_none=True))
    command = [sys.executable, "-c", f"from dprepro.stages.ui import ui; ui(port={port}, host='127.0.0.1')"]
    process = subprocess.Popen(
        command,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )
    page = f"http://127.0.0.1:{port}"
    try:
        answers(page, process)
        asked = json.dumps({"experiment_ids": ["1"]}).encode()
        request = urllib.request.Request(
            f"{page}/api/2.0/mlflow/runs/search", asked, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert len(json.load(answer)["runs"]) == RUNS
        said = refusal_of(lambda: ui(port=port, host="127.0.0.1"))
        assert said.startswith(f"127.0.0.1:{port}: can't serve there: Address already in use")
        clone = root / "clone"
        clone.mkdir()
        with monkeypatch.context() as patch:
            patch.chdir(clone)
            patch.setenv(STORE_ENV, page)
            record = example.put(small(example.LAYER, settings, shift=0.1), clone)
            assert publish([record], settings).written == (example.LAYER,)
            assert publish([record], settings).unchanged == (example.LAYER,)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does at Ctrl-C
        said, noise = process.communicate(timeout=60)
    finally:
        process.terminate()
        process.wait(60)
    assert process.returncode == 0
    assert "Traceback" not in noise
    assert "1 rows published" in said
    links = [line.strip() for line in said.splitlines() if page in line]
    assert f"{page}/#/experiments/1/runs?viewStateShareKey=results&workflowType=machine_learning" == links[0]
    assert "every result" in said
    assert "the best on MNIST at a proven epsilon of at most 3" in said
