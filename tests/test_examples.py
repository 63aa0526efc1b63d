"""The example that does DP-SGD by hand, against the engine."""

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from pipeline.data.prepared import Prepared
from pipeline.methods.base import Execution, as_input
from pipeline.methods.dpsgd.method import Dpsgd
from pipeline.models.model import Model
from pipeline.privacy import accounting
from pipeline.training.loop import Replica, make_task
from tests.conftest import dpsgd
from tests.there import there

PATH = Path(__file__).parents[1] / "examples/dpsgd_by_hand.py"


@pytest.fixture
def by_hand() -> ModuleType:
    spec = there(importlib.util.spec_from_file_location("dpsgd_by_hand", PATH))
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_step_is_the_engines(by_hand: ModuleType, tiny: Prepared, cpu: Execution) -> None:
    configured = dpsgd(clip=0.4, learning_rate=0.3)
    task = make_task([Replica("epsilon=3", 0, configured)], Model(name="lenet5"), True, tiny, cpu)
    method = Dpsgd(task, [configured], "none")
    before = method.init()["parameters"]
    chosen = torch.from_numpy(task.streams.poisson(7, 200, 0.1)[0])
    sigma = accounting.noise_for(
        configured.epsilon, configured.delta, 0.1, configured.total_steps(200), "rdp"
    )
    expected = by_hand.private_step(
        task.net,
        {name: value[0] for name, value in before.items()},
        as_input(task.inputs[chosen]),
        task.labels[chosen],
        clip=0.4,
        sigma=sigma,
        batch=20,
        rate=0.3,
        noise=task.streams.normal(7, sum(value[0].numel() for value in before.values()))[0],
    )
    after, _ = method.step(method.init(), 7)
    for name, value in expected.items():
        torch.testing.assert_close(after["parameters"][name][0], value, rtol=1e-4, atol=1e-6)


def test_it_trains_and_says_what_it_spent(tiny: Prepared, tmp_path: Path, warm: Path) -> None:
    for name, split in tiny.splits.items():
        np.save(tmp_path / f"{name}.inputs.npy", split.inputs)
        np.save(tmp_path / f"{name}.labels.npy", split.labels)
    source = PATH.read_text().replace("BATCH, EPOCHS, RATE = 1024, 8", "BATCH, EPOCHS, RATE = 20, 1")
    assert source != PATH.read_text()
    (tmp_path / "short.py").write_text(source)
    result = subprocess.run(
        [warm / "python", tmp_path / "short.py", tmp_path], capture_output=True, text=True, check=True
    )
    event = accounting.poisson_gaussian(0.1, 0.9, 10)
    assert f"epsilon <= {accounting.pld_epsilon(event, 1e-5):.2f}" in result.stdout
    assert "test accuracy" in result.stdout
