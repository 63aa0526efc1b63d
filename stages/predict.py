"""`dprepro predict FOLDER FILES...` and `dprepro predict ROW FILES...`."""

import csv
import io
import os
from pathlib import Path
from typing import Annotated

import typer

from stages.export import Level, Seed

MOST = 40  # lines of the table


def predict(
    network: Annotated[str, typer.Argument(help="A folder that `dprepro export` wrote, or a trained row.")],
    files: Annotated[
        list[Path], typer.Argument(help="Images, npz with images, CSV with texts, or txt with a text a line.")
    ],
    level: Level = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(help="A CSV file to write all predictions to.")] = None,
) -> None:
    """Classify new images or texts, prepared as the training data were: the class, and its probability."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from pipeline import params
    from pipeline.errors import UserError, printable
    from pipeline.export.folder import folder_predictor, row_predictor
    from pipeline.files import write_bytes
    from stages.answers import answering

    if Path(network).is_dir():
        if level is not None or seed is not None:
            raise UserError(f"{network}: is one exported training; --level and --seed are for rows")
        if params.PARAMS.exists():
            params.use_code()
        predictor = folder_predictor(Path(network))
    elif params.PARAMS.exists():
        predictor = row_predictor(network, level, seed, params.load())
    else:
        raise UserError(f"{network}: no such folder, and no {params.PARAMS} here with a row of that name")
    if out is not None and out.resolve() in (path.resolve() for path in files):
        raise UserError(f"--out {out}: is one of the files to classify; allowed: another file")
    classes = predictor.architecture.classes
    lines = [
        (str(path), str(place), classes[each.argmax()], f"{each.max():.4f}")
        for path in files
        for place, each in enumerate(predictor.probabilities(path), 1)
    ]
    head = ("file", "input", "class", "probability")
    if out is not None:
        content = io.StringIO()
        csv.writer(content, lineterminator="\n").writerows([head, *lines])
        write_bytes(out, os.fsencode(content.getvalue()))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in head:
        table.add_column(name, justify="right" if name in ("input", "probability") else "left")
    for line in lines[:MOST]:
        table.add_row(*(Text(printable(cell)) for cell in line))
    console = answering()
    console.print(table)
    if len(lines) > MOST:
        console.print(f"{len(lines) - MOST} more" + ("; --out FILE writes all" if out is None else ""))
    if out is not None:
        console.print(f"{out}: {len(lines)} predictions")
