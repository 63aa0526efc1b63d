"""A paper's tables and figures in MLflow: one run in its experiment."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from mlflow import MlflowClient

from pipeline.files import digest_files, digest_json
from pipeline.tracking import experiments, families, keeping
from pipeline.tracking.drawing import FORMAT
from pipeline.tracking.keeping import Wanted
from pipeline.tracking.store import address, opened
from pipeline.tracking.turns import has_turns

FOUND_BY = "tags.report = 'true'"


def publish_tables(
    paper: str, files: Sequence[Path], tables: dict[str, pd.DataFrame], root: Path = Path()
) -> bool:
    """Log a paper's report to its experiment: one run with ``files`` and ``tables``. False: it was there.

    Raises:
        UserError: the store can't be reached or written.
    """
    with opened(root) as client:
        experiment = experiments.numbers(client, {paper}, root)[paper]

        def begin(client: MlflowClient) -> str:
            note = "The report's tables and figures as files; `dprepro report` writes them."
            tags = {"report": "true", "kind": "report", "paper": paper, experiments.NOTE: note}
            run = client.create_run(experiment, tags=tags, run_name="report: tables and figures")
            return str(run.info.run_id)

        def fill(client: MlflowClient, run: str) -> None:
            for name, table in tables.items():
                # MLflow looks for pictures among columns of objects, and is slow to learn of pandas' texts
                client.log_table(run, table.astype(object), f"{name}.json")
            for path in files:
                client.log_artifact(run, str(path))
            client.set_terminated(run)

        digest = digest_json([FORMAT, digest_files(root, files)])
        wanted = Wanted("report", experiment, FOUND_BY, digest, 1, begin, fill)
        alone = has_turns(address(root))
        there = {wanted.row: families.now(client, experiment, FOUND_BY)} if alone else None
        return any(written for _, written in keeping.bring(client, [wanted], there))
