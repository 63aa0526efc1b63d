"""Several commands in one process are the commands, as far as the first that fails."""

from pathlib import Path

import pytest

from pipeline.cluster import worker
from stages.in_turn import in_turn


def test_what_fails_says_so_as_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("rows: 3\n")
    line = worker.in_turn([("epsilon", "--help"), ("ledger", "nothing"), ("epsilon", "--help")])
    monkeypatch.setattr("sys.argv", [])  # which it sets
    with pytest.raises(SystemExit) as ended:
        in_turn([str(word) for word in line[line.index("stages.in_turn") + 1 :]])
    assert ended.value.code == 1
    told = capsys.readouterr()
    assert told.out.count("Usage: dprepro epsilon") == 1
    assert told.err.startswith("dprepro: params.yaml: ")
