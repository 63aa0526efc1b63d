"""Several commands in one process are the commands, as far as the first that fails."""

import subprocess
from pathlib import Path

from pipeline.cluster import worker


def test_what_fails_says_so_as_alone(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("rows: 3\n")
    line = worker.in_turn([("epsilon", "--help"), ("ledger", "nothing"), ("epsilon", "--help")])
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.count("Usage: dprepro epsilon") == 1
    assert done.stderr.startswith("dprepro: params.yaml: ")
