"""`dprepro predict FOLDER FILES...`."""

import csv
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pipeline.export.folder import Predictor


def predict(
    folder: Annotated[Path, typer.Argument(help="A folder written by `dprepro export`.")],
    files: Annotated[
        list[Path],
        typer.Argument(help="Images, npz with images or features, CSV with texts, CSV or Parquet tables."),
    ],
    out: Annotated[Path | None, typer.Option(help="Write a CSV file instead of printing.")] = None,
) -> None:
    """Classify new images, texts or lines of a table, prepared like the training data.

    The result is a CSV with the class of each input and its probability. For a table, it has the table's own
    columns and then the probability of each class.
    """
    from pipeline import params
    from pipeline.errors import UserError, printable
    from pipeline.export.folder import folder_predictor
    from pipeline.files import write_bytes

    if params.PARAMS.exists():
        params.use_code()
    predictor = folder_predictor(folder)
    if out is not None and out.resolve() in (path.resolve() for path in files):
        raise UserError(f"--out {out}: is one of the files to classify; allowed: another file")
    classes = predictor.architecture.classes
    if predictor.preparation.columns is not None:
        head, lines = _of_tables(predictor, files)
    else:
        head = ["file", "input", "class", "probability"]
        lines = [
            [str(path), str(place), classes[each.argmax()], f"{each.max():.4f}"]
            for path in files
            for place, each in enumerate(predictor.probabilities(path), 1)
        ]
    content = io.StringIO()
    csv.writer(content, lineterminator="\n").writerows([head, *lines])
    if out is None:
        print("\n".join(map(printable, content.getvalue().splitlines())))
    else:
        write_bytes(out, os.fsencode(content.getvalue()))
        print(f"{out}: {len(lines)} predictions")


def _of_tables(predictor: "Predictor", files: list[Path]) -> tuple[list[str], list[list[str]]]:
    """Lines of tables, each with its class and the probability of every class.

    Raises:
        UserError: the tables have different columns.
    """
    from pipeline.data.own.tables import frame
    from pipeline.errors import UserError

    classes = predictor.architecture.classes
    columns: list[str] = []
    lines: list[list[str]] = []
    for path in files:
        probabilities, table = predictor.probabilities(path), frame(path)
        if columns and [*table.columns] != columns:
            raise UserError(f"{path}: other columns than {files[0]}; allowed: tables of the same columns")
        columns = [*table.columns]
        lines += [
            [*map(str, line), classes[each.argmax()], *(f"{share:.4f}" for share in each)]
            for line, each in zip(table.itertuples(index=False), probabilities, strict=True)
        ]
    return [*columns, "class", *(f"probability of {name}" for name in classes)], lines
