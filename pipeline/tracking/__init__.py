"""Runs of MLflow, built from the records and replaceable at any time.

A paper is an experiment, and a row is a run with a run per level below it. A level with several seeds has a
run per seed below it, and its own run has the means. `publishing` brings a store up to date.
"""

import os

# MLflow reads these at import. They turn off telemetry and the printed address of every run. A server that
# doesn't answer causes one clear line, without minutes of waiting.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
