"""What a laboratory's package may be called, and bring; `test_contributing.py` trains what one brings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import extensions, params
from pipeline.errors import UserError
from pipeline.extensions import Extension
from tests.conftest import forgetting


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Whatever is used here is not used afterwards."""
    with forgetting():
        yield


@pytest.mark.usefixtures("forgotten")
def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taking/models").mkdir(parents=True)
    (tmp_path / "taking/models/lenet5.py").write_text("def build(model, shape, classes): ...\n")
    extensions.use(["taking"], tmp_path)
    with pytest.raises(UserError, match=r"taking/models/lenet5.py: .*lenet5.py has that name too"):
        extensions.extensions("models")


@pytest.mark.usefixtures("forgotten")
def test_a_package_of_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "params.yaml").write_text("code: [json]\nraw: {}\ndata: {}\nrows: {}\n")
    with pytest.raises(UserError, match=r"params.yaml: code: 'json' is .*/json too; allowed: another name"):
        params.load(tmp_path / "params.yaml")


def test_every_kind_has_its_folder_here() -> None:
    for kind in extensions.BUILT_IN:
        there = extensions.extensions(kind)
        assert there
        assert all(isinstance(each, Extension) and each.path.is_file() for each in there.values())
