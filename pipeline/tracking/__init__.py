"""Records -> MLflow. Records are the truth; runs are drawn from them, as often as one likes.

An experiment is a paper. A row is a run, and below it is a run for each of its replicas; where a level has
several seeds, a run with their mean stands between. `publishing` brings a store up to date.
"""

import os

# MLflow reads these when it is imported: nothing is told to its makers, no address is printed for every run,
# and a server that doesn't answer is one clear line, not minutes of waiting.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
