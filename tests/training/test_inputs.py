"""Inputs that would break a guarantee silently are refused."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.data.prepared import Prepared, Split
from pipeline.errors import UserError
from pipeline.training.rows import check_inputs


def scaled(data: Prepared, factor: float) -> Prepared:
    train = data.splits["train"]
    inputs = train.inputs.astype(np.float32) / 255 * factor
    return replace(data, splits={**data.splits, "train": Split(inputs, train.labels)})


def test_laplace_noise_is_for_features_between_0_and_1(tiny: Prepared) -> None:
    for method in ("ilm", "adlm"):
        check_inputs(tiny, method)
        check_inputs(scaled(tiny, 1.0), method)
        with pytest.raises(UserError, match=r"inputs lie between 0 and .*for features in \[0, 1\]"):
            check_inputs(scaled(tiny, 2.0), method)
        with pytest.raises(UserError, match="nan"):
            check_inputs(scaled(tiny, float("nan")), method)
    check_inputs(scaled(tiny, 2.0), "dpsgd")  # whose clipping bounds what any input does
