"""Experiments of MLflow, one per paper."""

from collections.abc import Iterable
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Experiment, ViewType

from pipeline.errors import UserError
from pipeline.reporting import papers
from pipeline.tracking import notes, views
from pipeline.tracking.store import STORE, address

ARTIFACTS = Path("mlartifacts")


def existing(client: MlflowClient) -> dict[str, Experiment]:
    """Existing experiments by name, deleted ones included."""
    return {experiment.name: experiment for experiment in client.search_experiments(view_type=ViewType.ALL)}


def numbers(client: MlflowClient, wanted: Iterable[str]) -> dict[str, str]:
    """Find or create the papers' experiments, in alphabetical order.

    Artifacts of a local store are in a folder beside the store; a server has its own place for artifacts.

    Returns:
        Id of the experiment, by paper.

    Raises:
        UserError: the store was moved, so MLflow would look for its files in the old place.
    """
    there = existing(client)
    by_paper = {}
    for paper in sorted(wanted):
        tags = {notes.NOTE: notes.paper_note(papers.load(paper)), **views.tags()}
        local = address().startswith("sqlite:")
        place = (ARTIFACTS / paper).resolve().as_uri() if local else None
        experiment = there.get(paper) or client.get_experiment(
            client.create_experiment(paper, artifact_location=place, tags=tags)
        )
        if place and experiment.artifact_location != place:
            raise UserError(
                f"{address()}: keeps its files in {experiment.artifact_location}, not here, as after a "
                f"move; delete {STORE} and run `dprepro publish`, which makes it anew from the records"
            )
        by_paper[paper] = experiment.experiment_id
        if experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
        for name, value in tags.items():
            if experiment.tags.get(name) != value:
                client.set_experiment_tag(experiment.experiment_id, name, value)
    return by_paper
