"""`client.py SOCKET COMMAND ARGUMENTS...`: have a command run by `server.py`, as if it were run here.

It is sent this process's folder, environment and standard streams, is passed signals, and gives its status.
"""

import json
import os
import signal
import socket
import sys


def main() -> int:
    """The command's status; 137 where it was killed."""
    path, command, *arguments = sys.argv[1:]
    asked = {
        "command": command,
        "arguments": arguments,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(asked).encode() + b"\n"], [0, 1, 2])
        answer = connection.makefile()
        process = int(answer.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(process, number))
        return int(answer.readline() or 137)


if __name__ == "__main__":
    sys.exit(main())
