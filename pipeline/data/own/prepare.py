"""Raw files -> ``data/prepared/NAME``, whether the catalogue's or a person's own.

Where own files are in it every step is the catalogue's (`pipeline.data.prepare`), whose code is left alone:
its digest stands behind all that was ever prepared. Tests hold the two to the same bytes.
"""

import json
from pathlib import Path

from pipeline.data import prepare as catalogued
from pipeline.data.own.sets import load
from pipeline.data.prepare import Written
from pipeline.data.prepared import MANIFEST, PREPARED
from pipeline.data.splits import RULE, check_disjoint, content_keys, duplicates, select
from pipeline.files import replacing_folder, write_text
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
    data = pick(settings.data, name, "data set")
    if not settings.has_own(name):
        return catalogued.prepare(name, settings, root)
    sets = {key: load(key, settings, root) for key in dict.fromkeys((data.raw, data.public.raw))}
    catalogued._check_kinds(name, data, sets)
    keys = {
        (key, part): content_keys(examples.inputs)
        for key, each in sets.items()
        for part, examples in each.parts.items()
    }
    selections, passed_over = select(name, data, keys)
    check_disjoint(selections, keys)
    target = root / PREPARED / name
    with replacing_folder(target) as building:
        manifest = {
            "name": name,
            "rule": OWN_RULE,
            "seed": data.seed,
            "raw": {key: catalogued._origin(each) for key, each in sets.items()},
            "classes": list(sets[data.raw].entry.classes),
            "public": {
                **data.public.model_dump(include={"raw", "part"}),
                "classes": list(sets[data.public.raw].entry.classes),
                "passed_over": passed_over,
            },
            "counts": {split: len(chosen.indices) for split, chosen in selections.items()},
            "balance": {split: catalogued._balance(chosen, sets) for split, chosen in selections.items()},
            "duplicates": duplicates(selections, keys),
            **catalogued._write_arrays(building, data, sets, selections),
        }
        content = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        write_text(building / MANIFEST, content)
    return Written(target, manifest)
