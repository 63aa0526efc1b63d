"""Commands that should answer at once import none of the libraries that take seconds."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "dvc", "mlflow", "opacus", "pandas", "dp_accounting", "scipy.stats"}


def imported(*commands: str) -> set[str]:
    """Heavy libraries that the commands import, in a process of their own."""
    script = (
        "import sys\nfrom stages.app import app\n"
        f"for line in {commands!r}: app(line.split(), standalone_mode=False)\n"
        f"print('imported:', *({HEAVY!r} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    return set(last.removeprefix("imported:").split())


def test_what_there_is_to_do_and_comparisons_read_records_alone() -> None:
    assert imported("status", "plan", "compare davody-t5-ln-lenet5 davody-t5-lenet5") == set()


def test_a_row_is_verified_without_mlflow_and_opacus() -> None:
    assert not imported("verify davody-t2-lenet-300-100") & {"mlflow", "opacus", "dvc", "pandas"}
