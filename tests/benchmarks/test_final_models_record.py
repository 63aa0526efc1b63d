"""The recorded audit of final models: its bounds follow from its scores and are below the claim."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import final_model
from pipeline.audits import membership

ROOT = Path(__file__).parents[2]


def test_the_record_s_bounds_follow_from_its_scores() -> None:
    record = json.loads((ROOT / final_model.RECORD).read_text())
    without, within = (np.array(record[side]) for side in ("without", "within"))
    assert len(without) + len(within) == record["models"]
    found = membership.shown(without, within, True, final_model.ALPHA, record["delta"])
    assert found == pytest.approx(record["shown"], abs=1e-6)
    assert max(found.values()) <= record["epsilon_claimed"]
    assert final_model.as_published(without, within) == pytest.approx(record["as_published"])
    assert "<svg" in final_model.picture(record)
