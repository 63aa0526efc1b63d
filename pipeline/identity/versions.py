"""Versions of the code that computes numbers.

A method's version is in its settings, a model's version is in its file (`VERSION`), and the others are here.
Raise a version if the same settings would give other numbers from then on; results of earlier versions become
invalid. A faster or renamed implementation keeps its version. Golden values (`tests/golden/`) detect changed
numbers.
"""

from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.models.model import version

DIGITS = 1  # scikit-learn's digits in MNIST's files: pipeline/data/digits.py
SYNTHETIC = 1  # raw files that the project makes up: pipeline/data/synthetic.py
PREPARING = 1  # splits of catalogued data: pipeline/data/prepare.py
PREPARING_OWN = 1  # splits of the user's own files: pipeline/data/own/
IMAGES = 2  # reading of image files: pipeline/data/own/images.py
FEATURES = 2  # features by a public network: pipeline/data/own/trunk.py
STARTING = 1  # initial weights, and features: pipeline/pretrained/starts.py
AVERAGING = 1  # relevances: pipeline/pretrained/relevance.py
MEASURING = 1  # accuracies of trained weights: pipeline/training/evaluation.py
AUDITING = 4  # attacks: pipeline/audits/


def training(method: str, model: str) -> dict[str, int]:
    """Versions of the code that trains a row with this method and model."""
    return {"method": method_settings()[method].version, "model": version(model)}


def auditing(method: str, model: str) -> dict[str, int]:
    """Versions of the attacked code and of the attacks."""
    return {**training(method, model), "audit": AUDITING}
