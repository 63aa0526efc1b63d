"""Every kind of replica that a row has takes its first steps as it did when its golden values were kept."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from pipeline import params
from pipeline.methods.rooms import implementation, method_settings
from tests.golden.steps import Kind, kinds, kinds_of, take
from tests.golden.values import differences, path_of, read

OWN = params.load(Path(__file__).parents[2] / "params.yaml")
KINDS = kinds(OWN)
CASES = [(method, name) for method, named in sorted(KINDS.items()) for name in sorted(named)]
SMALLEST = {"lenet5", "lenet5_tanh", "adlm_cnn"}
# one operation a method whose sign changes, and the modules that then have to be read again
FLIPS = {
    "adlm": ("perturbed", "loss = polynomial(", "loss = -polynomial("),
    "batch_clipping": (
        "method",
        "value - each(value, rates) * sums[name]",
        "value + each(value, rates) * sums[name]",
    ),
    "dpsgd": ("method", "value / self.batch for", "-value / self.batch for"),
    "ilm": ("perturbed", "loss = polynomial(", "loss = -polynomial("),
    "noisy_weights": ("method", "update(state, gradients, ", "update(state, gradients, -"),
    "tan": ("method", "value / self.first.batch for", "-value / self.first.batch for"),
}


def kept(kind: Kind) -> Kind:
    """The row and level whose golden values are kept, if they are still of this kind."""
    golden = read(kind.row.method)[kind.name]
    row = OWN.rows.get(golden["row"], kind.row)
    levels = {row.level(configured): configured for configured in row.resolved}
    level = levels.get(golden["level"], row.resolved[0])
    return next(
        (other for other in kinds_of(golden["row"], row, level, OWN) if other.name == kind.name), kind
    )


def said(kind: Kind) -> str | None:
    """What the first steps of a kind have to say: nothing where all is as it was."""
    method = kind.row.method
    golden = read(method).get(kind.name)
    if golden is None:
        return f"{kind.key}: no golden values of its kind, {kind.name!r}: `python -m tests.golden {method}`"
    *_, steps = take(kept(kind), OWN, golden["steps"])
    moved = sorted(differences(golden, steps), key=lambda change: -change[1])
    if not moved:
        return None
    most = ", ".join(f"{name} by {gap:.1g} of its size" for name, gap in moved[:3])
    return (
        f"{method}: the numbers of {golden['row']} ({kind.name}) have moved: {most}; {len(moved)} in all. If "
        f"that was not meant, mend it. If it was, raise `version` in the settings of {method!r} (VERSION in "
        f"the file of {kind.row.model.name!r} where the model alone is why) and write golden values anew: "
        f"`python -m tests.golden {method}`"
    )


@pytest.mark.parametrize(("method", "name"), CASES)
def test_the_first_steps_are_as_they_were(method: str, name: str) -> None:
    problem = said(KINDS[method][name])
    assert problem is None, problem


@pytest.mark.parametrize("method", method_settings())
def test_golden_values_are_of_what_rows_have(method: str) -> None:
    assert read(method).keys() == KINDS.get(method, {}).keys(), f"`python -m tests.golden {method}`"


@pytest.mark.parametrize("method", method_settings())
def test_another_sign_is_noticed_by_name(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, before, after = FLIPS[method]
    trainer, _ = implementation(method)
    changed = f"{trainer.rpartition('.')[0]}.{name}"
    for module in dict.fromkeys((changed, trainer)):
        path = Path(str(import_module(module).__file__))
        text = path.read_text(encoding="utf-8")
        assert module != changed or text.count(before) == 1
        fresh = ModuleType(module)
        fresh.__dict__["__file__"] = str(path)
        monkeypatch.setitem(sys.modules, module, fresh)
        exec(compile(text.replace(before, after), str(path), "exec"), fresh.__dict__)
    problem = said(next(kind for kind in KINDS[method].values() if kind.row.model.name in SMALLEST))
    assert problem is not None
    assert problem.startswith(f"{method}: the numbers of ")
    assert f"raise `version` in the settings of {method!r}" in problem


def test_a_row_of_a_new_kind_has_no_golden_values_yet() -> None:
    row = next(row for row in OWN.rows.values() if row.method == "dpsgd")
    model = row.model.model_copy(update={"unnormalized": 3})
    (other,) = kinds_of("another", row.model_copy(update={"model": model}), row.resolved[0], OWN)
    assert said(other) == (
        f"another: no golden values of its kind, {other.name!r}: `python -m tests.golden dpsgd`"
    )


def test_the_files_are_of_methods() -> None:
    assert {path.stem for path in path_of("none").parent.glob("*.json")} == method_settings().keys()
