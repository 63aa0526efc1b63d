"""Encoding of texts with torchtext 0.6, the version behind the papers' text experiments.

A text becomes token numbers or public word vectors. Token numbers need a vocabulary of the training split, as
in those papers. This vocabulary is computed on private text without noise, so no epsilon covers it, and the
manifest notes this. Word vectors need no such vocabulary.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from torchtext.data import get_tokenizer
from torchtext.vocab import Vocab

from dprepro.pipeline.data import word_vectors
from dprepro.pipeline.files import digest_file, write_text
from dprepro.pipeline.params import Text

TOKENIZER = "basic_english"
PADDING, UNKNOWN = 0, 1
NOTE = "computed on the private training texts without noise: not covered by any epsilon"


@dataclass(frozen=True)
class Encoder:
    """Vocabulary, and the length in tokens to which every text is cut or padded."""

    tokens: int
    vocabulary: tuple[str, ...]  # in the order of their numbers, with padding and unknown

    @classmethod
    def of(cls, texts: Iterable[str], settings: Text) -> Self:
        """Encoder with the most frequent tokens of ``texts`` as vocabulary, ties in alphabetical order."""
        counts = Counter(token for text in texts for token in get_tokenizer(TOKENIZER)(text))
        vocabulary = Vocab(counts, max_size=settings.vocabulary, specials=("<pad>", "<unk>"))
        return cls(settings.tokens, tuple(vocabulary.itos))

    @classmethod
    def read(cls, content: bytes, tokens: int) -> Self:
        """Encoder with a vocabulary written by `write`, for texts of ``tokens`` tokens."""
        return cls(tokens, tuple(content.decode().split("\n")[:-1]))

    def __call__(self, texts: Sequence[str] | np.ndarray) -> np.ndarray:
        """Token numbers, int32 (N, tokens)."""
        tokenize = get_tokenizer(TOKENIZER)
        numbers = {token: number for number, token in enumerate(self.vocabulary)}
        encoded = np.full((len(texts), self.tokens), PADDING, np.int32)
        for row, text in zip(encoded, texts, strict=True):
            tokens = [numbers.get(token, UNKNOWN) for token in tokenize(text)[: self.tokens]]
            row[: len(tokens)] = tokens
        return encoded

    def write(self, path: Path) -> dict[str, Any]:
        """Write the vocabulary, one token per line in order of their numbers; return its manifest entry."""
        write_text(path, "".join(f"{token}\n" for token in self.vocabulary))
        return {
            "tokenizer": f"torchtext 0.6.0 {TOKENIZER}",
            "tokens": self.tokens,
            "vocabulary": len(self.vocabulary),
            "digest": digest_file(path),
            "note": NOTE,
        }


@dataclass(frozen=True)
class VectorEncoder:
    """Name of public word vectors, and the number of words to which every text is cut or padded."""

    tokens: int
    vectors: str

    def __call__(self, texts: Sequence[str] | np.ndarray) -> np.ndarray:
        """float32 (N, 1, tokens, E): vectors of each text's first words that have a vector, then zeros."""
        tokenize = get_tokenizer(TOKENIZER)
        rows, table = word_vectors.load(self.vectors)
        encoded = np.zeros((len(texts), 1, self.tokens, table.shape[1]), np.float32)
        for image, text in zip(encoded, texts, strict=True):
            known = [rows[token] for token in tokenize(text) if token in rows][: self.tokens]
            image[0, : len(known)] = table[known]
        return encoded

    def about(self) -> dict[str, Any]:
        """Manifest entry of the encoding."""
        origin = word_vectors.VECTORS[self.vectors]
        return {
            "tokenizer": f"torchtext 0.6.0 {TOKENIZER}",
            "tokens": self.tokens,
            "vectors": self.vectors,
            "digest": origin.table[1],
            "note": f"{origin.about}, of {origin.package} {origin.version}",
        }
