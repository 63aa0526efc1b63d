"""Wrong predictions of a network on the test split, packed: they outlast its weights.

The record has (predicted - right) mod classes of each test example; 0 is a right prediction. So accuracies
and paired differences of two networks need neither weights nor data, and the predicted classes need only the
test labels.
"""

import base64
import binascii
import zlib

import numpy as np

MOST_CLASSES = 256  # a byte for each example
MOST_EXAMPLES = 10_000_000


def packed(predicted: np.ndarray, labels: np.ndarray, classes: int) -> str | None:
    """Text for (N,) predicted classes and (N,) labels; None: too many classes for a byte each."""
    if classes > MOST_CLASSES:
        return None
    errors = ((predicted.astype(np.int64) - labels) % classes).astype(np.uint8)
    return base64.b64encode(zlib.compress(errors.tobytes(), 9)).decode()


def errors_of(text: str) -> np.ndarray:
    """(N,) uint8: the errors that `packed` packed; 0 where the prediction is right.

    Raises:
        ValueError: it is no such text.
    """
    try:
        stream = zlib.decompressobj()
        content = stream.decompress(base64.b64decode(text, validate=True), MOST_EXAMPLES)
    except (binascii.Error, zlib.error) as problem:
        raise ValueError(f"not packed errors: {problem}") from problem
    if not stream.eof or not content:
        raise ValueError("not packed errors: incomplete, empty or too large")
    return np.frombuffer(content, np.uint8)
