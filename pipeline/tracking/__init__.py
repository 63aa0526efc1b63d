"""Runs of MLflow, built from the records and replaceable at any time.

A paper is an experiment. A row is a run with a run per replica below it; a level of several seeds has a run
with their means in between. `publishing` brings a store up to date.
"""

import os

# MLflow reads these at import: no telemetry, no printed address for every run, and one clear line, without
# minutes of waiting, for a server that doesn't answer.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
