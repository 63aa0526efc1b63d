"""The source `official`: not written yet."""

from pathlib import Path

from pipeline.data.catalog import Edition, Entry
from pipeline.errors import UserError


def collect(entry: Entry, edition: Edition, downloads: Path, target: Path) -> None:
    """Say that only mirrors work so far."""
    raise UserError(f"{entry.title}: downloads are not written yet; give --mirror DIR")
