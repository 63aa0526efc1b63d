"""Model card in Hugging Face's format: metadata in YAML, then Markdown."""

from collections.abc import Collection, Iterator
from io import StringIO
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.export.privacy_statement import PrivacyStatement, markdown
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.reporting import wording
from dprepro.pipeline.reporting.verdict import mean
from dprepro.pipeline.results.schema import Errors, Record, TrainingResult

ACCURACY = "test_accuracy"


def model_card(
    record: Record,
    training: TrainingResult,
    data: Prepared,
    raw: str,
    counts: str,
    statement: PrivacyStatement,
    columns: Collection[str] | None = None,
    purpose: str = "",
) -> str:
    """Text of README.md for a training's network, trained on private data of the raw data set ``raw``.

    Args:
        record: record of the training's row.
        training: the training run.
        data: the row's prepared data.
        raw: key of the private raw data set.
        counts: numbers of examples, in words.
        statement: the training's privacy statement.
        columns: columns of a table that are features; None: the data are no table.
        purpose: purpose of the model, declared in the row.
    """
    about, made = data.manifest, record.origins[training.origin]
    content, yaml = StringIO(), YAML()
    yaml.allow_unicode = True
    yaml.dump(_metadata(record, training, about, raw), content)
    origin = about["raw"][raw]
    floats = data.splits["train"].inputs.dtype == np.float32
    networked = "features" in about and "network" in about["features"]
    takes = "an npz of features" if floats and not networked else "an image, or an npz of images"
    if "text" in about:
        takes = "a CSV of texts"
    elif columns is not None:
        takes = f"a CSV or Parquet table with the columns {', '.join(columns)}"
    suffix = f" Purpose: {purpose}" if purpose else ""
    source = f"{wording.level_words(training.level)}, seed {training.seed}"
    answers = "Probabilities are the softmax of the network's outputs; they are not calibrated."
    predicted = f"{data.classes} classes"
    if data.target is not None:
        low, high = data.target
        answers = "The prediction is a number in the units of the column."
        predicted = f"A number to predict, {about['classes'][0]}, clipped to {low:g} to {high:g}"
    return f"""---
{content.getvalue()}---

# {record.label}

Row `{record.row}` at {source}, exported by dprepro.{suffix}
`model.safetensors` has the weights. `config.json` has the architecture, digests and how inputs are prepared.
`privacy-statement.html` is the statement below to print and sign; `privacy-statement.json` has its numbers.

```console
dprepro predict . FILES...
```

A file is {takes}. {answers}

## Data

{origin["title"]} (edition: {origin["edition"]}; licence: {origin.get("licence") or "not stated"}).
{predicted}; {counts}.
No licence was chosen for the model: the metadata above say `unknown`.

## Training

- method: `{record.method}`, version {made.made_by.get("method", 0)}, {training.ledger.steps:,} steps
- model: {wording.settings_words(Model.model_validate(record.model).described)}
- settings: {wording.settings_words(training.settings)}
- with {", ".join(f"{name} {version}" for name, version in made.versions.items())} on {made.device}

## Accuracy

{_accuracy(record, training, data)}

## Privacy statement

{markdown(statement)}"""


def _metadata(record: Record, training: TrainingResult, about: dict[str, Any], raw: str) -> dict[str, Any]:
    features = about.get("features", {})
    tabular = "range" in features and "network" not in features and len(about["input_shape"]) == 1
    kind = "regression" if "target" in about else "classification"
    task = f"{'text' if 'text' in about else 'tabular' if tabular else 'image'}-{kind}"
    return {
        "license": "unknown",
        "library_name": "dprepro",
        "pipeline_tag": task,
        "tags": ["differential-privacy", record.method],
        "metrics": ["rmse"] if "target" in about else ["accuracy"],
        "model-index": [
            {
                "name": record.row,
                "results": [
                    {
                        "task": {"type": task},
                        "dataset": {"name": about["raw"][raw]["title"], "type": raw, "split": "test"},
                        "metrics": [
                            {"type": kind, "value": value, "name": f"test {name} of this training"}
                            for kind, name, value in _results(training)
                        ],
                    }
                ],
            }
        ],
    }


def _results(training: TrainingResult) -> Iterator[tuple[str, str, float]]:
    """Type, name and value of each result. Recalls are left out: a class may have few test examples."""
    if isinstance(training.scores, Errors):
        for name, value in training.scores.over_all.items():
            if value is not None:
                yield name, name.upper(), value
        return
    yield "accuracy", "accuracy", training.metrics[ACCURACY]
    if training.scores is not None:
        yield "f1", "macro F1", training.scores.f1
        if training.scores.auc is not None:
            yield "roc_auc", "AUC", training.scores.auc


def _accuracy(record: Record, training: TrainingResult, data: Prepared) -> str:
    if isinstance(training.scores, Errors):
        own = f"{training.scores.words} on {len(data.splits['test']):,} test examples, of this training."
        return f"{own}{training.scores.guess and f' They are {training.scores.guess}.'}"
    own = f"{100 * training.metrics[ACCURACY]:.2f} % of {len(data.splits['test']):,} test examples"
    scored = f" {training.scores.words}." if training.scores else ""
    if training.scores and training.scores.guess:
        scored += f" The accuracy is {training.scores.guess}."
    sentence = f"{own}, of this training.{scored}"
    if training.ledger.event is None:
        # other private trainings used the same examples; the epsilon of this one does not cover their results
        seeds = [100 * other.metrics[ACCURACY] for other in record.trainings if other.level == training.level]
        over = wording.with_interval(mean(seeds), 2)
        sentence += f" Test accuracy over all seeds of the level, in %: {over}."
    if spread := training.metrics.get("test_accuracy_draws_std"):
        sentence += (
            f" It is a mean over draws of the noise at test, whose standard deviation is {100 * spread:.2f} "
            "points; what is exported is the first draw."
        )
    return sentence
