"""The logs of tasks, read from their end."""

from pathlib import Path

LINE_BYTES = 4096  # in which the last line ends


def last_line(path: Path) -> str:
    """The last line of a log; nothing where there is none yet."""
    lines = end(path, LINE_BYTES).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def end(path: Path, most: int, start: int = 0) -> str:
    """At most the last ``most`` bytes of a log, of those from ``start`` on; nothing where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(start, file.tell() - most))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
