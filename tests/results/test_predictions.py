"""Packed predictions, and what they let anybody compute again."""

import base64
import zlib

import numpy as np
import pytest

from dprepro.pipeline.results.records import errors_of, packed


def test_errors_come_back_and_are_small() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 10, 10_000)
    predicted = np.where(generator.random(10_000) < 0.97, labels, generator.integers(0, 10, 10_000))
    text = str(packed(predicted, labels, 10))
    errors = errors_of(text)
    assert [int(label + error) % 10 for label, error in zip(labels, errors, strict=True)] == [*predicted]
    assert float((errors == 0).mean()) == float((predicted == labels).mean())
    assert len(text) < 1500
    assert len(str(packed(generator.integers(0, 10, 10_000), labels, 10))) < 7000
    assert packed(predicted, labels, 257) is None


@pytest.mark.parametrize(
    "text",
    ["", "A", "AAAA", base64.b64encode(zlib.compress(bytes(10))[:-5]).decode(),
     base64.b64encode(zlib.compress(bytes(10_000_001))).decode()],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not packed errors"):
        errors_of(text)
