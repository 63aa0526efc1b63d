"""Search for hyper-parameters on validation data, with a record.

Every candidate is trained on the training split and judged on the validation split; the test split is never
read. Candidates, their accuracies and their spending go to ``reports/searches/NAME.json``. No row's epsilon
includes the spending of these trainings, and every ledger says so.
"""

import shutil
from pathlib import Path

from dprepro.errors import Unproven, UserError
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.files import write_json
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.params import OWN, Settings, pick
from dprepro.pipeline.params.schema import SEARCHED_SEED
from dprepro.pipeline.pretrained.loading import check_joined
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import (
    Candidate,
    SearchRecord,
    TrainingKey,
    TrainingSpent,
    best,
)
from dprepro.pipeline.training.checkpoints import checkpoint_lock
from dprepro.pipeline.training.loop import Context, SeedRun, Show
from dprepro.pipeline.training.rows import check_inputs, provenance_of, stopped, stopped_path
from dprepro.pipeline.training.side_by_side import train_runs


def search(
    name: str,
    settings: Settings,
    data: Prepared,
    execution: Execution,
    show: Show,
    root: Path = Path(),
    workers: int = 1,
) -> Path:
    """Run a search and write its record; return the record's path.

    An interrupted search continues from its checkpoint. If the search has a valid record, nothing is trained.

    Raises:
        UserError: there is no such search, the data don't fit, or its record is of other private data.
        Unproven: examples mix in a step. The stopped trainings have no bound, and count as replaced trainings
            in the search's next record.
    """
    definition = pick(settings.searches, name, "search")
    row = settings.row(definition.row)
    check_joined(data, settings)
    check_inputs(data, row.method)
    source = provenance_of(definition.row, settings, data, execution)
    choices = list(settings.candidates(name))
    identity = records.definition_of(name, settings, source)
    checkpoints = records.search_checkpoints(name, root)
    checkpoint = checkpoints / identity[7:19]
    # not the seeds of the row, whose results stay unseen until its settings are fixed
    seeds = range(SEARCHED_SEED, SEARCHED_SEED + definition.seeds)
    runs = [
        SeedRun(f"{row.level(configured)}/{index}", seed, configured)
        for index, (_, configured) in enumerate(choices)
        for seed in seeds
    ]
    context = Context(
        row.model,
        row.reproducible,
        data,
        execution,
        show,
        checkpoint,
        checkpoint_every=60,
        final_only=True,  # the last accuracy judges a candidate, and measuring can cost more than training
    )
    trained: dict[TrainingKey, tuple[float, float, TrainingSpent | None]] = {}  # accuracy, seconds, spending
    target, kept = records.search_path(name, root), f"search={name}"  # no row's key
    with checkpoint_lock(checkpoints):  # one for all definitions
        earlier = records.read_search(name, root)
        if earlier and earlier.provenance.declared != source.declared:
            edition = earlier.provenance.edition
            # the privacy budget of other private data counts the record's trainings
            if other := {raw for raw in edition if edition[raw] == OWN} - {settings.split(row.data).raw}:
                raise UserError(f"{target}: searched on {min(other)}, too; allowed: another name")
        if earlier is None or earlier.definition != identity:
            try:
                for finished in train_runs(runs, context, workers):
                    (judged_by,) = (
                        value for *_, metric, value in finished.history if metric == "validation_accuracy"
                    )
                    spent = TrainingSpent.of(finished.method.guarantee(), finished.steps)
                    trained[finished.run.key] = judged_by, finished.seconds, spent
            except Unproven as problem:
                write_json(stopped_path(kept, root), stopped(kept, root) + problem.trainings)
                raise
            recorded = []
            for index, (values, configured) in enumerate(choices):
                level = row.level(configured)
                outcomes = [trained[f"{level}/{index}", seed] for seed in seeds]
                judged, times, spendings = zip(*outcomes, strict=True)
                candidate = Candidate(
                    level=level,
                    settings=values,
                    seeds=len(seeds),
                    validation_accuracy=judged,
                    seconds=round(sum(times), 1),
                    spent=spendings[0],
                )
                recorded.append(candidate)
            # results that were published keep their privacy loss
            gone: list[TrainingSpent | None] = [None] * stopped(kept, root)
            gone += earlier.spent() if earlier else []
            replaced = records.with_replaced(earlier.replaced if earlier else (), gone)
            record = SearchRecord(
                name=name,
                row=definition.row,
                judged_on=f"validation split of {row.data} ({len(data.splits['validation'])} examples)",
                candidates=tuple(recorded),
                chosen=best(recorded),
                provenance=source,
                replaced=replaced,
                definition=identity,
            )
            records.write(record, root)
            stopped_path(kept, root).unlink(missing_ok=True)
        shutil.rmtree(checkpoint, ignore_errors=True)
    return target
