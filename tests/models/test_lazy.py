"""A layer without sizes is refused where the row is read: noise and clipping need to know every weight."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import params
from pipeline.errors import UserError
from pipeline.extensions import Extension, Kind, extensions
from pipeline.models import model
from tests.params.good import changed

LAZY = "from torch import nn\n\n\ndef build(model, shape, classes):\n    return nn.LazyLinear(classes)\n"
PARTS = "from torch.nn import LazyConv2d\n\n\ndef stem():\n    return LazyConv2d(4, 3)\n"
USER = "from pipeline.models.parts import stem\n\n\ndef build(model, shape, classes):\n    return stem()\n"
PLAIN = "from torch import nn\n\n\ndef build(model, shape, classes):\n    return nn.Linear(3, LazyBones)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    def beside(kind: Kind) -> dict[str, Extension]:
        return {**extensions(kind), **{path.stem: Extension("", path) for path in tmp_path.glob("*.py")}}

    monkeypatch.setattr(model, "extensions", beside)
    model.architectures.cache_clear()
    model.lazy_layers.cache_clear()
    yield tmp_path
    model.architectures.cache_clear()
    model.lazy_layers.cache_clear()


def test_it_is_refused_in_one_line(folder: Path) -> None:
    (folder / "mine.py").write_text(LAZY)
    with pytest.raises(UserError) as caught:
        params.parse(changed("rows/one/model", {"name": "mine"}))
    assert str(caught.value) == (
        "params.yaml: rows.one.model: 'mine' has LazyLinear, whose size nobody knows before data pass "
        "through it; allowed: Linear, with a size from the shape that `build` is told"
    )


def test_so_is_one_in_a_part(folder: Path) -> None:
    (folder / "mine.py").write_text(USER)
    (folder / "parts.py").write_text(PARTS)
    assert model.lazy_layers("mine") == {"LazyConv2d"}


def test_other_names_are_names(folder: Path) -> None:
    (folder / "mine.py").write_text(PLAIN)
    assert model.lazy_layers("mine") == frozenset()
    assert model.Model(name="mine").name == "mine"
