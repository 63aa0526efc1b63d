"""A folder that appears whole or not at all."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import writing


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Give an empty folder to fill; once filled without an error it takes the place of ``folder``.

    The temporary name is fixed, so what a killed run left behind is cleared by the next one.

    Raises:
        UserError: the folder can't be written. After any error ``folder`` is as it was.
    """
    building = folder.with_name(f".{folder.name}.partial")
    with writing(building):
        if building.exists():
            shutil.rmtree(building)
        building.mkdir(parents=True)
    try:
        yield building
        with writing(folder):
            if folder.exists():
                shutil.rmtree(folder)
            building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
