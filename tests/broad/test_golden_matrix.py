"""Golden steps under each set of vector instructions and number of threads."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

CELLS = list(product(("default", "avx2", "avx512"), ("SSE41", "AVX2", "AVX512_CORE"), ("1", "2", "4")))


@pytest.mark.broad
@pytest.mark.parametrize(("aten", "onednn", "threads"), CELLS)
def test_golden_steps_do_not_depend_on_the_processor(aten: str, onednn: str, threads: str) -> None:
    """27 cells. A processor without an instruction set takes the largest that it has."""
    allowed = {"ATEN_CPU_CAPABILITY": aten, "ONEDNN_MAX_CPU_ISA": onednn, "OMP_NUM_THREADS": threads}
    command = [sys.executable, "-m", "tests.golden", "check", "all"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, env={**os.environ, **allowed}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
