"""A paper is an experiment of MLflow's."""

from functools import partial
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Experiment
from mlflow.exceptions import MlflowException

from pipeline.errors import UserError
from pipeline.reporting import papers
from pipeline.tracking import views
from pipeline.tracking.races import tried
from pipeline.tracking.store import ARTIFACTS, STORE, address

# Without it MLflow takes an experiment for one on language models and opens pages about their traces.
KIND = {"mlflow.experimentKind": "custom_model_development"}
NOTE = "mlflow.note.content"
ALL = 3  # MLflow's ViewType of what is there and what was deleted


def numbers(client: MlflowClient, needed: set[str], root: Path) -> dict[str, str]:
    """Paper -> number of its experiment, which is made where there is none.

    Those of all known papers are made together, so that the numbers in the report's links are there.
    Artifacts of a local store lie beside it; a server knows its own place for them.

    Raises:
        UserError: the store was moved, so that MLflow would look for files where it was.
    """
    there = existing(client)
    found = {}
    for paper in [*papers.names(), *sorted(needed - set(papers.names()))]:
        place = (root / ARTIFACTS / paper).resolve().as_uri() if _local(root) else None
        one = there.get(paper) or _made(client, paper, place)
        if place and one.artifact_location != place:
            raise UserError(
                f"{address(root)}: keeps its files in {one.artifact_location}, not here, as after a move; "
                f"delete {STORE} and run `dprepro publish`, which makes it anew from the records"
            )
        if one.lifecycle_stage == "deleted":
            _restore(client, one)
        found[paper] = one.experiment_id
        _tag(client, one, {**KIND, **views.tags()})
    return found


def existing(client: MlflowClient) -> dict[str, Experiment]:
    """The experiments that are there, deleted ones too, by name."""
    return {one.name: one for one in client.search_experiments(view_type=ALL)}


def describe(client: MlflowClient, experiment: str, note: str) -> None:
    """Say what an experiment is."""
    _tag(client, client.get_experiment(experiment), {NOTE: note})


def _local(root: Path) -> bool:
    return address(root).startswith("sqlite:")


def _made(client: MlflowClient, paper: str, place: str | None) -> Experiment:
    """A new experiment, or the one that somebody else made in this moment."""
    try:
        return client.get_experiment(client.create_experiment(paper, artifact_location=place, tags=KIND))
    except MlflowException:
        found = client.get_experiment_by_name(paper)
        if found is None:
            raise
        return found


def _restore(client: MlflowClient, one: Experiment) -> None:
    try:
        client.restore_experiment(one.experiment_id)
    except MlflowException:
        if client.get_experiment(one.experiment_id).lifecycle_stage == "deleted":
            raise  # nobody else restored it in this moment


def _tag(client: MlflowClient, one: Experiment, wanted: dict[str, str]) -> None:
    for name, value in wanted.items():
        if one.tags.get(name) != value:
            tried(partial(client.set_experiment_tag, one.experiment_id, name, value))
