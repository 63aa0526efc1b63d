"""The declared versions of what computes numbers.

A method's stands in the settings of its room, a model's in its file (`VERSION`), and the others stand here. A
version is raised where the same settings would give other numbers from then on; numbers of an
earlier version no longer stand. What only reads differently or is faster keeps its version: golden values
(`tests/golden/`) tell the two apart.
"""

from pipeline.methods.rooms import method_settings
from pipeline.models.model import version

SYNTHETIC = 1  # raw files that the project makes up: pipeline/data/synthetic.py
PREPARING = 1  # splits of catalogued data: pipeline/data/prepare.py
PREPARING_OWN = 1  # splits of files that somebody brought: pipeline/data/own/
STARTING = 1  # weights to start from, and features: pipeline/pretrained/starts.py
AVERAGING = 1  # relevances: pipeline/pretrained/relevance.py
MEASURING = 1  # accuracies of trained weights: pipeline/training/evaluation.py
AUDITING = 4  # attacks: pipeline/audits/


def training(method: str, model: str) -> dict[str, int]:
    """Versions of what trains a row with this method and model, engine and mechanism included."""
    return {"method": method_settings()[method].version, "model": version(model)}


def auditing(method: str, model: str) -> dict[str, int]:
    """Versions of what an audit attacks, and of the attacks."""
    return {**training(method, model), "audit": AUDITING}
