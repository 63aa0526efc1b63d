"""MLflow's store, built anew from the records: an experiment a paper, a run a result, its seeds below."""

import os

# MLflow reads these at import. They turn off telemetry and the printed address of every run.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
