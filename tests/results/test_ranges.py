"""Each number of a record has a range: no page, store or pack fails at one."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dprepro.errors import UserError
from dprepro.pipeline.results import records

ROOT = Path(__file__).parents[2]
# compared with params.yaml, or words of a statement
FREE = {"settings", "model", "chosen", "values"}
READERS: dict[str, tuple[str, Callable[[str, Path], object]]] = {
    "trainings": ("davody-t5-lenet5-planned.jsonl", records.read_run),
    "evaluations": ("phan-f4a-adlm-reduced.jsonl", records.read_evaluation),
    "ledgers": ("phan-f4a-adlm-reduced.json", records.read_ledgers),
    "searches": ("davody-t5-lenet5.json", records.read_search),
    "audits": ("davody-t5-lenet5.json", records.read_attacks),
}


def places(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all numbers, one of each kind: of lists the first entry that has it."""
    inner = (
        enumerate(content)
        if isinstance(content, list)
        else content.items()
        if isinstance(content, dict)
        else ()
    )
    for name, value in inner:
        if name not in FREE:
            yield from places(value, (*path, str(name)))
    if isinstance(content, int | float) and not isinstance(content, bool):
        yield path


def put(content: Any, path: tuple[str, ...], value: float) -> None:
    *parents, last = path
    for name in parents:
        content = content[int(name) if isinstance(content, list) else name]
    content[int(last) if isinstance(content, list) else last] = value


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("value", [1e308, -1e308, 10**400])
def test_a_number_out_of_its_range_is_refused(tmp_path: Path, kind: str, value: float) -> None:
    name, read = READERS[kind]
    original = (ROOT / "reports" / kind / name).read_text()
    first, *others = original.splitlines() if name.endswith("l") else [original]
    (path := tmp_path / "reports" / kind / name).parent.mkdir(parents=True)
    seen: set[tuple[str, ...]] = set()
    for place in places(json.loads(first)):
        if (generic := tuple(part for part in place if not part.isdigit())) in seen:
            continue
        seen.add(generic)
        content = json.loads(first)
        put(content, place, value)
        path.write_text("\n".join([json.dumps(content), *others]))
        taken = True
        try:
            read(path.stem, tmp_path)
        except UserError as problem:
            taken = path.name not in str(problem)
        assert not taken, place
    assert len(seen) > 5


def test_an_evaluation_without_a_test_accuracy_is_refused(tmp_path: Path) -> None:
    name, read = READERS["evaluations"]
    first, *others = (ROOT / "reports" / "evaluations" / name).read_text().splitlines()
    content = json.loads(first)
    del content["metrics"]["test_accuracy"]
    (path := tmp_path / "reports" / "evaluations" / name).parent.mkdir(parents=True)
    path.write_text("\n".join([json.dumps(content), *others]))
    with pytest.raises(UserError, match=r"phan-f4a-adlm-reduced\.jsonl.*metrics: lacks test_accuracy"):
        read(path.stem, tmp_path)
