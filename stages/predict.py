"""`dprepro predict FOLDER FILES...`: predictions of an exported network."""

import csv
import io
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dprepro.pipeline.export.folder import Predicted, Predictor


def predict(
    folder: Annotated[Path, typer.Argument(help="A folder written by `dprepro export`.")],
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Images, folders of images as `new data` takes them, npz of images or features, CSV of "
            "texts, CSV or Parquet tables."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="CSV file to write instead of printing.")] = None,
) -> None:
    """Classify new images, texts or lines of a table. The command prepares them like the training data.

    The result is a CSV with the class of each input and its probability. For a table, the CSV has the table's
    columns, then class and probabilities, or the predicted number. If files have labels, accuracy and other
    scores are printed; a folder of images for each class has labels. Git ignores the classified files
    and the file of --out.
    """
    from dprepro.errors import UserError, counted, printable
    from dprepro.pipeline import params
    from dprepro.pipeline.data.own.private import ignore_inputs, ignore_output
    from dprepro.pipeline.export.folder import folder_predictor
    from dprepro.pipeline.files import write_bytes

    if out is not None and out.resolve() in (path.resolve() for path in files):
        raise UserError(f"--out {out}: is one of the files to classify; allowed: another file")
    if out is not None and out.suffix.lower() != ".csv":
        raise UserError(f"--out {out}: the predictions are a CSV file; allowed: a name that ends in .csv")
    if params.PARAMS.exists():
        params.use_code()
    predictor = folder_predictor(folder)
    ignore_inputs(path for path in files if path.exists())
    if out is not None:
        ignore_output(out)
    head, lines, found = _predicted(predictor, files)
    content = io.StringIO()
    csv.writer(content, lineterminator="\n").writerows([head, *lines])
    if out is None:
        print("\n".join(map(printable, content.getvalue().splitlines())))
    else:
        write_bytes(out, os.fsencode(content.getvalue()))
        print(f"{out}: {counted(len(lines), 'prediction')}")
    for line in _scored(found, predictor.architecture.classes):
        print(line, file=sys.stderr if out is None else sys.stdout)


def _predicted(
    predictor: "Predictor", files: list[Path]
) -> tuple[list[str], list[list[str]], list["Predicted"]]:
    """Head and lines of the CSV, and the predictions for each file.

    Raises:
        UserError: an input can't be classified, or tables have different columns.
    """
    import numpy as np

    from dprepro.errors import UserError
    from dprepro.pipeline.data.own.tables import as_texts

    classes = predictor.architecture.classes
    head: list[str] = []
    lines: list[list[str]] = []
    found: list[Predicted] = []
    for path, label in _inputs(files):
        one = predictor.predict(path)
        if label in classes:
            one = one._replace(labels=np.array([classes.index(label)]))
        found.append(one)
        if one.outputs.ndim == 1:
            added, answers = [f"predicted {classes[0]}"], [[f"{number:.6g}"] for number in one.outputs]
        else:
            added = ["class", *(f"probability of {name}" for name in classes)]
            answers = [
                [classes[shares.argmax()], *(f"{share:.4f}" for share in shares)] for shares in one.outputs
            ]
        if one.lines is None:
            head = ["file", "input", "class", "probability"]
            lines += [
                [str(path), str(number), answer[0], f"{shares.max():.4f}"]
                for number, (answer, shares) in enumerate(zip(answers, one.outputs, strict=True), 1)
            ]
            continue
        own = [*one.lines.columns]
        while {*own} & {*added}:  # readers of a CSV take the first of two columns of one name
            added = [f"predicted {name}" for name in added]
        if head and [*own, *added] != head:
            raise UserError(f"{path}: other columns than {files[0]}; allowed: tables of the same columns")
        head = [*own, *added]
        lines += [[*line, *answer] for line, answer in zip(as_texts(one.lines), answers, strict=True)]
    return head, lines, found


def _inputs(files: Sequence[Path]) -> Iterator[tuple[Path, str | None]]:
    """Files to classify; for images of a folder also the name of the folder in it, which may be a class."""
    from dprepro.pipeline.data.own.files import PARTS, images_of, is_part, say_left_out

    for path in files:
        parts = [folder for part in PARTS if is_part(folder := path / part)]
        images = [(folder, image) for folder in parts or [path] for image in images_of(folder)]
        if not images:  # a file, or a folder that is refused
            yield path, None
            continue
        say_left_out(path)
        yield from ((image, image.relative_to(folder).parts[0]) for folder, image in images)


def _scored(found: list["Predicted"], classes: Sequence[str]) -> Iterator[str]:
    """Lines with scores, for the inputs whose class or numeric target is in their file."""
    import numpy as np

    from dprepro.errors import shown

    if unknown := sum((Counter(one.unknown) for one in found), Counter()):
        counts = ", ".join(f"{shown(name)} {count:,}" for name, count in unknown.most_common(10))
        yield f"{unknown.total():,} inputs are left out of the scores: their labels are no classes: {counts}"
    if not (labelled := [one for one in found if len(one.labels)]):
        return
    outputs = np.concatenate([one.outputs for one in labelled])
    labels = np.concatenate([one.labels for one in labelled])
    if not (known := labels >= 0 if outputs.ndim > 1 else ~np.isnan(labels)).any():
        return
    from dprepro.pipeline.training.scores import errors, scores
    from dprepro.stages.answers import score_lines

    outputs, labels = outputs[known], labels[known]
    if outputs.ndim == 1:
        yield f"{errors(outputs, labels).words}, of {len(labels):,} inputs with {classes[0]} in their file"
        return
    accuracy = (outputs.argmax(1) == labels).mean()
    yield f"accuracy {100 * accuracy:.2f} % of {len(labels):,} inputs whose class is in their file"
    yield from score_lines(scores(outputs, labels), classes)
