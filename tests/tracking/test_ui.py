"""`dprepro ui` publishes, serves pages, prints links, and ends quietly."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from dprepro.pipeline.tracking import views
from dprepro.stages.ui import ui
from tests.commands import heed_ctrl_c
from tests.refusal import refusal_of
from tests.reporting.made_up import dpsgd as example
from tests.tracking.conftest import answers, small


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
