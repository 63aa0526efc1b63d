"""`dprepro ui`: MLflow's page with the published records."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Annotated

import typer

from dprepro.errors import UserError


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to serve on.")] = 5000,
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
) -> None:
    """Build MLflow's store anew from the records, then serve MLflow's page until Ctrl-C."""
    from dprepro.pipeline.tracking import views
    from dprepro.pipeline.tracking.publishing import address
    from dprepro.stages.publish import build

    _check_free(host, port)
    experiments = build()
    print("MLflow starts, which takes some seconds; Ctrl-C ends it. The judged results:")
    for paper, number in experiments.items():
        print(f"  {paper}: {views.link(number, f'http://{host}:{port}')}", flush=True)
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", host]
    command += ["--port", str(port), "--backend-store-uri", address()]
    command += ["--uvicorn-opts", "--log-level warning"]
    # job runners are unused here; without them MLflow starts four times as fast in a fifth of the memory
    sys.exit(serve(command, {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}))


def serve(command: list[str], environment: dict[str, str]) -> int:
    """Run a server until it ends, or until Ctrl-C, TERM or HUP ends it; return its status, then 0.

    The server has its own session, because it would print tracebacks at Ctrl-C.
    """
    server = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    ended: list[object] = []

    def stop(*_: object) -> None:
        ended.append(True)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)

    for ended_by in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ended_by, stop)
    status = server.wait()
    return 0 if ended else status


def _check_free(host: str, port: int) -> None:
    """Raise an error if a server can't serve at the address.

    Raises:
        UserError: the address is not this machine's, or the port is taken.
    """
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as problem:
        # a host name that can't be resolved has a negative error number
        reason = os.strerror(problem.errno) if problem.errno and problem.errno > 0 else problem.strerror
        raise UserError(
            f"{host}:{port}: can't serve there: {reason}; choose another with --port"
        ) from problem
