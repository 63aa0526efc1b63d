"""What a laboratory's package may be called, and bring; `test_contributing.py` trains what one brings."""

from pathlib import Path

import pytest

from dprepro.errors import UserError
from dprepro.pipeline import extensions, params
from tests.conftest import forgetting


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
