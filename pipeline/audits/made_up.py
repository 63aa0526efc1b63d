"""Made-up examples with the shape and classes of a row's data, so that an attack needs no data."""

import numpy as np

from dprepro.pipeline.data.prepared import Prepared, Split
from dprepro.pipeline.data.raw import entry_of
from dprepro.pipeline.params import Row, Settings

TOKENS, CLASSES, PUBLIC = 12, 10, 8
BLACK, WHITE = 0, 255


def examples(row: Row, settings: Settings, count: int, last: int | None) -> Prepared:
    """Data set of ``count`` random examples of class 0, then one of class 1 whose values are all ``last``.

    A text has token 7 instead of ``last``. If ``last`` is None, the last example is like the others. `PUBLIC`
    further examples are public.
    """
    split = settings.split(row.data)
    entry = entry_of(split.raw, settings)
    text, shape = split.text, entry.shape
    if text is not None and text.vectors is not None:
        shape = text.stored_shape
    generator = np.random.default_rng(0)

    def drawn(size: int) -> np.ndarray:
        if settings.has_features(row.data):
            return generator.random((size, *row.model.features_shape), dtype=np.float32)
        if shape is None:
            return generator.integers(1, 50, (size, TOKENS), dtype=np.int32)
        if entry.features is not None or text is not None:
            return generator.random((size, *shape), dtype=np.float32)
        return generator.integers(0, 256, (size, *shape), dtype=np.uint8)

    inputs, labels = drawn(count + 1), np.zeros(count + 1, dtype=np.int64)
    if last is not None:
        inputs[-1], labels[-1] = last if shape is not None else 7, 1
    seen = drawn(PUBLIC)
    manifest = {
        "classes": [str(number) for number in range(CLASSES)],
        "digests": {},
        "raw": {},
        "input_shape": inputs.shape[1:],
        **({"text": {"vocabulary": 50}} if shape is None else {}),
        **({"unit": {"at_most": group}} if (group := settings.group(row.data)) else {}),
    }
    splits = {"train": Split(inputs, labels), "public": Split(seen, np.arange(PUBLIC) % CLASSES)}
    return Prepared("made up", splits, manifest)
