"""Data sets: raw files that are checked by their bytes, and the splits that rows are trained on.

Another package adds raw data sets by entry points of the group `dprepro.data_sets`, each of which names an
`Entry` of `pipeline.data.catalog`. Where keys are the same, the one here counts.
"""

from importlib.metadata import entry_points

from pipeline.data.catalog import CATALOG, Entry

for _point in entry_points(group="dprepro.data_sets"):
    _entry = _point.load()
    if not isinstance(_entry, Entry):
        raise ImportError(
            f"entry point {_point.name!r} of dprepro.data_sets: {_point.value!r} is no "
            "pipeline.data.catalog.Entry"
        )
    CATALOG.setdefault(_entry.key, _entry)
