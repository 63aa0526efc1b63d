"""Methods are found by looking; nothing but their own room says that they are there."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from pipeline.methods.rooms import implementation, method_settings

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("method", method_settings())
def test_a_method_says_what_it_is(method: str) -> None:
    settings_type = method_settings()[method]
    assert settings_type.method == method
    assert settings_type.axis in settings_type.model_fields
    assert "none" in settings_type.normalizations
    module, name = implementation(method)
    assert module.startswith(settings_type.__module__.removesuffix("settings"))
    for needed in ("init", "step", "model", "network", "logits", "variants", "resumable", "guarantee"):
        assert callable(getattr(getattr(import_module(module), name), needed))


def test_params_are_read_without_torch_and_without_a_methods_code() -> None:
    """Every `dprepro` command reads them, and what they reach by import is behind every number."""
    script = (
        "import sys; from pipeline import params; params.load(); "
        "assert not {'torch', 'dp_accounting'} & set(sys.modules); "
        "print(*sorted(name for name in sys.modules if name.startswith('pipeline.methods.')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    rooms = {settings_type.__module__ for settings_type in method_settings().values()}
    packages = {room.rpartition(".")[0] for room in rooms}
    assert set(result) == rooms | packages | {"pipeline.methods.rooms", "pipeline.methods.settings"}


def test_no_method_is_imported_by_the_registry() -> None:
    code = (ROOT / "pipeline/methods/registry.py").read_text()
    assert not [method for method in method_settings() if f".{method}" in code]
