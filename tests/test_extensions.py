"""What a laboratory's package may be called, and bring; `test_contributing.py` trains what one brings."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import extensions, params
from pipeline.errors import UserError
from pipeline.extensions import Extension
from pipeline.methods.registry import training_class
from pipeline.methods.rooms import method_settings
from tests.conftest import forgetting

ROOT = Path(__file__).parents[1]


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taking/models").mkdir(parents=True)
    (tmp_path / "taking/models/lenet5.py").write_text("def build(model, shape, classes): ...\n")
    with forgetting():
        extensions.use(["taking"], tmp_path)
        with pytest.raises(UserError, match=r"taking/models/lenet5.py: .*lenet5.py has that name too"):
            extensions.extensions("models")


def test_a_package_of_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "params.yaml").write_text("code: [json]\nraw: {}\ndata: {}\nrows: {}\n")
    line = r"params.yaml: code: 'json' is .*/json too; allowed: another name"
    with forgetting(), pytest.raises(UserError, match=line):
        params.load(tmp_path / "params.yaml")


def test_every_kind_has_its_folder_here() -> None:
    for kind in extensions.BUILT_IN:
        there = extensions.extensions(kind)
        assert there
        assert all(isinstance(each, Extension) and each.path.is_file() for each in there.values())


@pytest.mark.parametrize("method", method_settings())
def test_a_method_says_what_it_is(method: str) -> None:
    settings_type = method_settings()[method]
    assert settings_type.method == method
    assert settings_type.axis in settings_type.model_fields
    assert "none" in settings_type.normalizations
    trainer = training_class(method)
    assert trainer.__module__.startswith(settings_type.__module__.removesuffix("settings"))
    for needed in ("init", "step", "model", "network", "logits", "variants", "resumable", "guarantee"):
        assert callable(getattr(trainer, needed))


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
    shared = {f"pipeline.methods.{name}" for name in ("rooms", "settings", "spending")}
    assert set(result) == rooms | packages | shared


def test_no_method_is_imported_by_the_registry() -> None:
    code = (ROOT / "pipeline/methods/registry.py").read_text()
    assert not [method for method in method_settings() if f".{method}" in code]
