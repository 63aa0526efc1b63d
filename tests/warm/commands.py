"""A folder of commands that a warm server runs."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
COMMANDS = ("dprepro", "dvc", "python")
SHIM = """\
#!/bin/sh
exec "{python}" -I -S "{client}" "{socket}" {command} "$@"
"""


@contextmanager
def commands(folder: Path) -> Iterator[Path]:
    """``folder/bin`` with `dprepro`, `dvc` and a `python` that runs scripts, while the block lasts."""
    place, there = folder / "bin", folder / "socket"
    place.mkdir(parents=True)
    for name in COMMANDS:
        shim = SHIM.format(python=sys.executable, client=HERE / "client.py", socket=there, command=name)
        (place / name).write_text(shim)
        (place / name).chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-P", HERE / "server.py", there], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        while not there.exists():
            assert server.poll() is None, "the warm server ended"
            time.sleep(0.05)
        yield place
    finally:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
