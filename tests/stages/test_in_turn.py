"""Several commands in one process are the commands, as far as the first that fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.cluster import worker
from stages import in_turn

COMMANDS = (("train", "row", "--workers", "1"), ("evaluate", "row"), ("ledger", "row"))


@pytest.mark.parametrize(("failing", "ran"), [(None, 3), ("evaluate", 2)])
def test_each_has_its_own_arguments(
    failing: str | None, ran: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[tuple[str, ...]] = []

    def main() -> None:
        name, *command = sys.argv
        assert name == "dprepro"
        seen.append(tuple(command))
        sys.exit(3 if command[0] == failing else 0)

    monkeypatch.setattr(in_turn, "main", main)
    monkeypatch.setattr(sys, "argv", ["as it was"])
    line = worker.in_turn(COMMANDS)
    arguments = line[line.index("stages.in_turn") + 1 :]
    if failing is None:
        in_turn.in_turn(arguments)
    else:
        with pytest.raises(SystemExit) as ended:
            in_turn.in_turn(arguments)
        assert ended.value.code == 3
    assert seen == list(COMMANDS[:ran])


def test_what_fails_says_so_as_alone(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("rows: 3\n")
    line = worker.in_turn([("epsilon", "--help"), ("ledger", "nothing"), ("epsilon", "--help")])
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.count("Usage: dprepro epsilon") == 1
    assert done.stderr.startswith("dprepro: params.yaml: ")
