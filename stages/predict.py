"""`dprepro predict FOLDER FILES...`."""

import csv
import io
import os
from pathlib import Path
from typing import Annotated

import typer


def predict(
    folder: Annotated[Path, typer.Argument(help="A folder that `dprepro export` wrote.")],
    files: Annotated[list[Path], typer.Argument(help="Images, npz with images or features, CSV with texts.")],
    out: Annotated[Path | None, typer.Option(help="A CSV file to write, in place of printing.")] = None,
) -> None:
    """Classify new images or texts, prepared as the training data were: the class, and its probability."""
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
    lines = [
        (str(path), str(place), classes[each.argmax()], f"{each.max():.4f}")
        for path in files
        for place, each in enumerate(predictor.probabilities(path), 1)
    ]
    head = ("file", "input", "class", "probability")
    content = io.StringIO()
    csv.writer(content, lineterminator="\n").writerows([head, *lines])
    if out is None:
        print("\n".join(map(printable, content.getvalue().splitlines())))
    else:
        write_bytes(out, os.fsencode(content.getvalue()))
        print(f"{out}: {len(lines)} predictions")
