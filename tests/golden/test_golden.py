"""Every kind of training that a row has takes its first steps as it did when its golden values were kept."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dprepro.noise.mechanisms import GaussianMechanism
from dprepro.noise.streams import Streams
from dprepro.pipeline.methods.dpsgd.method import Dpsgd
from dprepro.pipeline.methods.dpsgd.settings import DpsgdSettings
from dprepro.pipeline.methods.settings import method_settings
from tests.golden.steps import Kind, kinds, kinds_of
from tests.golden.values import path_of, problem, read
from tests.paper_rows import paper_rows

ROOT = Path(__file__).parents[2]
OWN = paper_rows()
KINDS = kinds(OWN)
CASES = [(method, name) for method, named in sorted(KINDS.items()) for name in sorted(named)]
SMALLEST = {"lenet5", "lenet5_tanh", "adlm_cnn"}


def small_kind(method: str) -> Kind:
    """A method's kind of training with a small network; a private one if there is such."""
    small = [kind for kind in KINDS[method].values() if kind.row.model.name in SMALLEST]
    return max(small, key=lambda kind: kind.level.private)


@pytest.mark.parametrize(("method", "name"), CASES)
def test_the_first_steps_are_as_they_were(method: str, name: str) -> None:
    line = problem(KINDS[method][name], OWN)
    assert line is None, line


@pytest.mark.parametrize("method", method_settings())
def test_golden_values_are_of_what_rows_have(method: str) -> None:
    assert read(method).keys() == KINDS.get(method, {}).keys(), f"`python -m tests.golden {method}`"


@pytest.mark.parametrize(
    ("owner", "attribute"),
    [
        (GaussianMechanism, "deviations"),
        (DpsgdSettings, "rate_at"),
        (Streams, "normal"),
        (Dpsgd, "bounds"),
    ],
)
def test_a_hundred_thousandth_of_noise_step_size_or_clip_is_noticed(
    owner: type, attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = small_kind("dpsgd")
    assert kind.level.private
    real = getattr(owner, attribute)

    def changed(*arguments: Any, **options: Any) -> Any:
        value = real(*arguments, **options)
        return value._replace(limits=1.00001 * value.limits) if owner is Dpsgd else 1.00001 * value

    monkeypatch.setattr(owner, attribute, changed)
    line = problem(kind, OWN)
    assert line.startswith("dpsgd: the numbers of ")
    assert "raise `version` in the settings of 'dpsgd'" in line


def run(arguments: list[str], aten: str, onednn: str, threads: int) -> tuple[int, str, str]:
    """Status, output and errors of python with these instructions and threads.

    Where the processor has fewer instructions than are allowed, those that it has are used.
    """
    limits = {"ATEN_CPU_CAPABILITY": aten, "ONEDNN_MAX_CPU_ISA": onednn, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=os.environ | limits, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def test_no_number_hangs_on_the_processor() -> None:
    """The fewest instructions and one thread; other tests have those of this processor."""
    code = "from tests.golden.test_golden import *; print([problem(small_kind(m), OWN) for m in KINDS])"
    _, output, errors = run(["-c", code], "default", "SSE41", 1)
    assert output == f"{[None] * len(KINDS)}\n", errors


@pytest.mark.broad
@pytest.mark.parametrize(
    "cell", [*product(("default", "avx2", "avx512"), ("SSE41", "AVX2", "AVX512_CORE"), (1, 2, 4))]
)
def test_no_number_of_any_kind_hangs_on_the_processor(cell: tuple[str, str, int]) -> None:
    status, _, errors = run(["-m", "tests.golden", "check", "all"], *cell)
    assert status == 0, errors


def test_a_row_of_a_new_kind_has_no_golden_values_yet() -> None:
    row = next(row for row in OWN.rows.values() if row.method == "dpsgd")
    model = row.model.model_copy(update={"unnormalized": 3})
    (other,) = kinds_of("another", row.model_copy(update={"model": model}), row.resolved[0], OWN)
    assert problem(other, OWN) == (
        f"another: no golden values of its kind, {other.name!r}: `python -m tests.golden dpsgd`"
    )


def test_the_files_are_of_methods() -> None:
    assert {path.stem for path in path_of("none").parent.glob("*.json")} == method_settings().keys()
