"""Folder of an exported network: written atomically, and compared with its digests on reading."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import safetensors.torch
import torch
from pydantic import ValidationError

from dprepro.errors import UserError, printable, reading
from dprepro.fields import Key, Strict
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.declaration import check_declared
from dprepro.pipeline.data.own import tables, trunk
from dprepro.pipeline.data.own.files import check_regular
from dprepro.pipeline.export.inputs import (
    TRUNK,
    VOCABULARY,
    WEIGHTS,
    FileName,
    Preparation,
    preparation_of,
    read_inputs,
    vocabulary_of,
)
from dprepro.pipeline.export.networks import (
    Architecture,
    Network,
    architecture_of,
    fits,
    probe,
    rebuilt,
    same,
    tensors_of,
    trained_network,
    training_of,
)
from dprepro.pipeline.export.statement import PrivacyStatement
from dprepro.pipeline.files import (
    RECORD_BYTES,
    WEIGHTS_BYTES,
    digest,
    digest_json,
    replacing_folder,
    write_bytes,
)
from dprepro.pipeline.ledgers.composition import privacy_budget
from dprepro.pipeline.params import Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Level, Record, Seed, TrainingRecord, TrainingResult

if TYPE_CHECKING:
    from pandas import DataFrame

UNKNOWN = -1  # class of an input whose label isn't a class of the network
CONFIG, CARD, STATEMENT = "config.json", "README.md", "privacy-statement"


class Exported(Strict):
    """Content of ``config.json``, without its ``digest``."""

    schema_version: Literal[1] = 1
    dprepro: str  # version of dprepro that wrote it
    row: Key
    level: Level
    seed: Seed
    architecture: Architecture
    preparation: Preparation
    probe: list[list[float]]  # logits of made-up inputs, for comparison on reading
    privacy: PrivacyStatement
    files: dict[FileName, str]  # digest of each file


class Predicted(NamedTuple):
    """Predictions for the inputs of a file."""

    outputs: np.ndarray  # (N, K) probabilities, or (N,) numbers in the units of the target
    labels: np.ndarray  # (N,) classes, `UNKNOWN` for others; or numbers, NaN for others; (0,): no labels
    lines: "DataFrame | None"  # rows of a table
    unknown: Mapping[str, int]  # number of inputs by label, for labels that are no classes of the network


@dataclass(frozen=True)
class Predictor:
    """Network, and the preparation of files as inputs of this network."""

    architecture: Architecture
    network: Network
    preparation: Preparation
    contents: dict[FileName, bytes]  # contents of the folder's files

    def predict(self, path: Path) -> Predicted:
        """Predictions for the inputs of a file, with its labels.

        Raises:
            UserError: as `read_inputs`.
        """
        takes = self.architecture
        given = read_inputs(path, takes.shape, takes.floats, self.preparation, self.contents)
        outputs = self.network.probabilities(given.inputs)
        if self.preparation.target is not None:
            low, high = self.preparation.target
            numbers_given = tables.as_numbers(given.labels).clip(low, high)  # as in training and evaluation
            found = low + (high - low) * outputs[:, 0]
            return Predicted(found, numbers_given, given.lines, {})
        numbers = {name: number for number, name in enumerate(takes.classes)}
        known = {*range(len(numbers))}
        labels = [numbers.get(each, each) for each in given.labels]
        right = np.array([each if each in known else UNKNOWN for each in labels], np.int64)
        unknown = Counter(str(each) for each in labels if each not in known and each != "")
        return Predicted(outputs, right, given.lines, unknown)


def export(key: str, level: str | None, seed: int | None, folder: Path, settings: Settings) -> Exported:
    """Write a row's network to a new folder; ``level`` and ``seed`` as for `training_of`.

    Raises:
        UserError: as `training_of`; the row's data or weights are missing or damaged; the data were prepared
            by another declaration; the folder exists; the training was not measured or accounted for; the
            ledger lacks trainings or searches; the training's outputs are not finite; or its network can't
            be computed without the data.
    """
    # imported here, so that predictions don't wait for accountants and the report's words
    from dprepro.pipeline.export.model_card import model_card
    from dprepro.pipeline.export.privacy_statement import html, privacy_statement
    from dprepro.pipeline.ledgers.compared import check_row
    from dprepro.pipeline.reporting.wording import level_words

    if folder.exists() and not (folder / CONFIG).is_file():
        raise UserError(f"{folder}: is there already; allowed: a new folder")
    row = settings.row(key)
    check_declared(row.data, settings)  # the folder gets the present declaration of new files
    data = prepared.load(row.data)
    trained = training_of(key, row, data, level, seed)
    record, training = _recorded(key, trained, settings)
    network, architecture = trained_network(key, trained, row, data), architecture_of(trained, row, data)
    tensors, logits = tensors_of(network), probe(architecture, network)
    if not np.isfinite(logits).all():
        raise UserError(f"{key}: {trained.level}, seed {trained.seed}: its outputs are not finite")
    if not same(logits, probe(architecture, rebuilt(architecture, tensors))):
        raise UserError(
            f"{key}: can't be exported: its predictions need the data it learned from, not only its weights"
        )
    ledgers, run = records.read_ledgers(key), records.read_run(key)
    assert ledgers is not None, "it is part of the record"
    assert run is not None, "it is part of the record"
    check_row(ledgers, run, row.search, settings, quick=True)
    weights = safetensors.torch.save(
        {name: value.clone(memory_format=torch.contiguous_format) for name, value in tensors.items()},
        {"format": "pt"},
    )
    contents: dict[FileName, bytes] = {WEIGHTS: weights}
    raw = settings.split(row.data).raw
    sizes = {split: len(part) for split, part in data.splits.items()} | {"train": architecture.examples}
    counts = f"{', '.join(f'{split} {size:,}' for split, size in sizes.items())} examples"
    if trained.settings.get("nominal_examples"):
        counts += " (that of train is a declared number)"
    examples = f"{data.manifest['raw'][raw]['title']}, {counts}"
    budget = privacy_budget(row.data, settings)
    statement = privacy_statement(record, training, ledgers.versions, examples, digest(weights), budget)
    if (vocabulary := vocabulary_of(data)) is not None:
        contents[VOCABULARY] = vocabulary
    preparation = preparation_of(row, data, settings)
    if preparation.network is not None:
        contents[TRUNK] = trunk.exported(preparation.network, Path())
    exported = Exported(
        dprepro=version("dprepro"),
        row=key,
        level=trained.level,
        seed=trained.seed,
        architecture=architecture,
        preparation=preparation,
        probe=logits,
        privacy=statement,
        files={name: digest(content) for name, content in contents.items()},
    )
    described = json.loads(exported.model_dump_json())
    sealed = {**described, "digest": digest_json(described)}
    config = json.dumps(sealed, indent=1, ensure_ascii=False) + "\n"
    card = model_card(record, training, data, raw, counts, statement, preparation.columns, row.purpose)
    name = f"'{key}' (trained with {level_words(trained.level)}, seed {trained.seed})"
    files: dict[str, bytes] = {str(name): content for name, content in contents.items()}
    files |= {
        CARD: card.encode(),
        f"{STATEMENT}.html": html(statement, name).encode(),
        f"{STATEMENT}.json": f"{statement.model_dump_json(indent=1)}\n".encode(),
        CONFIG: config.encode(),
    }
    if folder.exists():
        # an export that was killed after it had written the folder may be run again
        for file, content in files.items():
            if not (folder / file).is_file() or (folder / file).read_bytes() != content:
                raise UserError(f"{folder}: is there already; allowed: a new folder ({file} is another)")
        return exported
    with replacing_folder(folder) as building:
        for file, content in files.items():
            write_bytes(building / file, content)
    return exported


def _recorded(key: str, trained: TrainingRecord, settings: Settings) -> tuple[Record, TrainingResult]:
    """Record of a row, and the record's entry for the training ``trained``.

    Raises:
        UserError: the training was not measured or not accounted for.
    """
    if record := records.read(key, settings.rows[key]):
        for training in record.trainings:
            if training.key == trained.key:
                return record, training
    raise UserError(
        f"{key}: {trained.level}, seed {trained.seed}: not measured or not accounted for; run "
        f"`dprepro evaluate {key}` and `dprepro ledger {key}`"
    )


def folder_predictor(folder: Path) -> Predictor:
    """Predictor of an exported folder.

    Raises:
        UserError: the folder has no exported network, a file is missing or has another digest, or the
            installed dprepro gives other outputs.
    """
    exported = _config(folder / CONFIG)
    if lacking := [name for name in exported.preparation.needed_files if name not in exported.files]:
        raise UserError(f"{folder / CONFIG}: files: lacks {lacking[0]}")
    contents = {name: _checked_content(folder / name, expected) for name, expected in exported.files.items()}
    try:
        if not fits(exported.architecture, len(contents[WEIGHTS])):
            raise _other_outputs(folder, exported)
        network = rebuilt(exported.architecture, safetensors.torch.load(contents[WEIGHTS]))
        alike = same(exported.probe, probe(exported.architecture, network))
    except UserError as problem:
        raise UserError(f"{folder}: {problem}") from problem
    # torch raises many kinds of exceptions for wrong names or shapes
    except (RuntimeError, KeyError, ValueError, TypeError, safetensors.SafetensorError) as problem:
        raise _other_outputs(folder, exported) from problem
    if not alike:
        raise _other_outputs(folder, exported)
    tokens, shape = exported.preparation.tokens, exported.architecture.shape
    if tokens is not None and (tokens,) != shape[-2:-1]:  # (T, V) token numbers, or (1, T, E) word vectors
        raise UserError(
            f"{folder / CONFIG}: preparation.tokens: {tokens}: not the length of the network's texts"
        )
    return Predictor(exported.architecture, network, exported.preparation, contents)


def _other_outputs(folder: Path, exported: Exported) -> UserError:
    return UserError(
        f"{folder}: was exported by dprepro {exported.dprepro}, and model "
        f"{exported.architecture.model.name!r} of dprepro {version('dprepro')} here computes otherwise"
    )


def _config(path: Path) -> Exported:
    """Content of ``config.json``, compared with its own digest."""
    content = _content(path, "`dprepro export ROW FOLDER` writes such a folder")
    try:
        fields = json.loads(content)
        seal = fields.pop("digest")
        if digest_json(fields) != seal:
            raise UserError(f"{path}: is not what was exported: its digest is not {printable(str(seal), 80)}")
        return Exported.model_validate_json(json.dumps(fields))
    except ValidationError as problem:
        first = problem.errors(include_input=False)[0]
        where = printable(".".join(map(str, first["loc"])), 100)
        raise UserError(f"{path}: can't be used here: {where}: {printable(first['msg'])}") from problem
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise UserError(f"{path}: is not what `dprepro export` writes") from problem


def _checked_content(path: Path, expected: str) -> bytes:
    content = _content(path, "it is part of the exported model")
    if digest(content) != expected:
        raise UserError(
            f"{path}: is not what was exported: its digest is not the one in {CONFIG}; export it again"
        )
    return content


def _content(path: Path, hint: str) -> bytes:
    """Content of a file of usual size; ``hint`` is for the message if it can't be read."""
    most = WEIGHTS_BYTES if path.suffix == ".safetensors" else RECORD_BYTES
    with reading(path, hint):
        check_regular(path)
        if path.stat().st_size > most:
            raise UserError(f"{path}: larger than {most >> 20} MB, which is the most of such a file")
        return path.read_bytes()
