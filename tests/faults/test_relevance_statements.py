"""What a training's record says of the network behind its relevances, beside the prepared data."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.methods.spending import Statement
from dprepro.pipeline.results.records import read_run
from dprepro.pipeline.transport import adopting

REPO = Path(__file__).parents[2]
INFORMED, PUBLIC, TESTED = "informed_relevance", "public_relevance", "test_relevance"


@dataclass
class Data:
    """What `data_uses` reads of prepared data."""

    manifest: dict[str, Any]
    has_vocabulary: bool = False
    splits: dict[str, list[int]] = field(default_factory=lambda: {"public": []})
    start: None = None


@pytest.mark.parametrize(
    ("here", "recorded", "lacks"),
    [
        (None, {INFORMED}, None),
        (None, {PUBLIC}, None),
        (None, set(), INFORMED),
        ({"informed": True, "test_examples_seen": 0}, {INFORMED}, None),
        ({"informed": True, "test_examples_seen": 0}, {PUBLIC}, INFORMED),
        ({"informed": False, "test_examples_seen": 0}, {INFORMED}, PUBLIC),
        ({"informed": True, "test_examples_seen": 9}, {INFORMED}, TESTED),
    ],
)
def test_a_pack_says_of_the_relevances_what_the_data_here_say(
    here: dict[str, Any] | None, recorded: set[str], lacks: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without prepared data, params.yaml doesn't decide between a network of public and of private data."""
    monkeypatch.chdir(REPO)
    run = read_run("phan-f4b-adlm-planned")
    assert run is not None
    training = run.trainings[0]
    values: dict[str, Any] = {"row": "phan-pretrained", "data": "mnist"}
    statements = tuple(Statement(key=key, values=values) for key in sorted(recorded))
    training = training.model_copy(update={"not_covered": statements})
    data = Data({"relevance": {**values, **(here or {})}})
    monkeypatch.setattr(adopting.prepared, "manifest_here", lambda _: None if here is None else data.manifest)
    monkeypatch.setattr(adopting.prepared, "load", lambda _: data)
    settings = params.load(REPO / "params.yaml")
    if lacks is None:
        adopting._check_statements(training, settings)
    else:
        with pytest.raises(UserError, match=f"lacks '{lacks}'"):
            adopting._check_statements(training, settings)
