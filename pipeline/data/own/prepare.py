"""Raw files -> ``data/prepared/NAME``, whether the catalogue's or a person's own."""

from pathlib import Path

from pipeline.data import prepare as catalogued
from pipeline.data.own.sets import load
from pipeline.data.prepare import Written
from pipeline.data.splits import RULE
from pipeline.params import Settings, pick

OWN_RULE = (
    f"{RULE}; where own data have no test part, it is the first `test` examples in the permutation of the "
    "declaration's seed"
)


def prepare(name: str, settings: Settings, root: Path = Path()) -> Written:
    """Split raw data into ``data/prepared/NAME``; the same raw files and settings give the same bytes.

    Args:
        name: a key of ``data`` in params.yaml.
        settings: the whole of params.yaml.
        root: the folder that holds params.yaml.

    Raises:
        UserError: raw files are missing or wrong, sizes don't fit, or the folder can't be written.
    """
    pick(settings.data, name, "data set")
    if not settings.has_own(name):
        return catalogued.prepare(name, settings, root)
    return catalogued.write_splits(name, settings, root, load, OWN_RULE)
