"""Comparison of prepared data with their declaration in params.yaml."""

from collections.abc import Iterator, Mapping
from typing import Any

from dprepro.errors import UserError
from dprepro.pipeline.data.prepared import PREPARED, Declared, Prepared, manifest_here
from dprepro.pipeline.files import digest_json
from dprepro.pipeline.params import PARAMS, Settings


def check_declared(name: str, settings: Settings) -> None:
    """Make sure that the prepared data set ``name`` has the present declaration, if it is prepared here.

    ``name`` is a key of ``data``, ``starts`` or ``relevances``.

    Raises:
        UserError: the data set was prepared by another declaration; the message names the key that differs,
            and the commands that prepare the data anew.
    """
    manifest = manifest_here(name)
    if manifest is None or (key := changed_key(manifest, name, settings)) is None:
        return
    joined = settings.derived.get(name)
    names = [joined.data, name] if joined else [name]
    commands = " and ".join(f"`dprepro {settings.stage_of(each)} {each}`" for each in names)
    raise UserError(f"{PREPARED / name}: prepared with another {key} than {PARAMS} has now; run {commands}")


def prepared_here(name: str, settings: Settings) -> Prepared | None:
    """Prepared data set ``name`` without its arrays; None if it isn't prepared here as declared now."""
    manifest = manifest_here(name)
    if manifest is None or changed_key(manifest, name, settings):
        return None
    return Prepared(name, {}, manifest)


def data_here(key: str, settings: Settings) -> Prepared | Declared:
    """Data of the row ``key``: the manifest of the prepared data set, or its declaration in params.yaml."""
    row = settings.rows[key]
    data = settings.split(row.data)
    edition = {name: settings.edition(name) for name in (data.raw, data.public.raw)}
    return prepared_here(row.data, settings) or Declared(settings.data_digest(row.data), data.train, edition)


def digest_of(digests: Mapping[str, str]) -> str:
    """Digest of own files, from their ``digests`` by name; of a single file, the digest of that file.

    Names are those below ``data/raw/NAME``; an image is always in the folder of its class.
    """
    names = [*digests]
    return digests[names[0]] if len(names) == 1 and "/" not in names[0] else digest_json(digests)


def changed_key(manifest: dict[str, Any], name: str, settings: Settings) -> str | None:
    """First key in the declaration of ``name`` that differs from its manifest; None if all are equal."""
    return next((key for key, differs in _comparisons(manifest, name, settings) if differs), None)


def _comparisons(manifest: dict[str, Any], name: str, settings: Settings) -> Iterator[tuple[str, bool]]:
    data = settings.split(name)
    origins, counts, public = manifest["raw"], manifest["counts"], manifest["public"]
    yield "raw", origins.keys() != {data.raw, data.public.raw} or public["raw"] != data.public.raw
    for key, origin in origins.items():
        yield f"edition of {key}", origin["edition"] != settings.edition(key)
        if key in settings.own:
            yield f"digest of {key}", settings.own[key].digest != digest_of(origin["files"])
            encoding = settings.own[key].encoding
            yield (
                f"encoding of {key}",
                origin.get("encoding") != (digest_json(encoding) if encoding else None),
            )
            yield f"declaration of {key}", origin.get("declared") != settings.own_digest(key)
    yield "train", counts.get("train") != data.train
    yield "validation", counts.get("validation") != data.validation
    yield "public", (public["part"], counts.get("public")) != (data.public.part, data.public.count)
    yield "seed", manifest["seed"] != data.seed
    if data.text is not None:
        text = manifest.get("text", {})
        yield "text", (text.get("tokens"), text.get("vectors")) != (data.text.tokens, data.text.vectors)
        # the texts may have fewer words than declared; the manifest also counts padding and unknown words
        yield "vocabulary", text.get("vocabulary", 0) > (data.text.vocabulary or 0) + 2
