"""`dprepro evaluate ROW`: accuracies of trained weights."""

from typing import Annotated

import typer

from dprepro.stages.answers import compared, measured, scored
from dprepro.stages.train import Device, Physical, ready


def evaluate(
    row: Annotated[str, typer.Argument(help="A row with trained weights: a key of `rows` in params.yaml.")],
    device: Device = "auto",
    physical: Physical = 0,
    again: Annotated[
        bool, typer.Option("--again", help="Measure all weights again and compare with the record.")
    ] = False,
) -> None:
    """Measure the missing accuracies of a trained row's runs, on validation and test data.

    Accuracies of trainings that replace recorded ones are compared with the record.

    A row on own data also gets AUC, F1, log loss, calibration error, recalls and a confusion matrix. With a
    numeric target, it gets RMSE, MAE and R2 instead.
    """
    from dprepro.pipeline import params
    from dprepro.pipeline.rerun import replaced
    from dprepro.pipeline.results import records
    from dprepro.pipeline.results.weights import require
    from dprepro.pipeline.training import evaluation
    from dprepro.stages.progress import counting

    loaded = params.load()
    loaded.row(row)
    if recorded := records.read_run(row):
        require(recorded)  # before the data, which a clone lacks too
    data, how = ready(row, loaded, device, physical, anywhere=True)
    run, before = records.read_run(row), records.read_evaluation(row)
    if again:
        with counting(row, len(run.trainings) if run else 0) as show:
            evaluation.compare(row, loaded, data, how, show)
        print(f"{row}: accuracies are as recorded, {records.evaluation_path(row)}")
        return
    with counting(row, len(run.trainings) if run else 0) as show:
        path = evaluation.evaluate(row, loaded, data, how, show=show)
    print(f"{row}: evaluated, {path}")
    for line in measured(row):
        print(f"  {line}")
    for line in scored(row, data.manifest["classes"]):
        print(f"  {line}")
    for difference in replaced(before, records.read_evaluation(row)):
        print(f"  {compared(difference, 'rebuilt')}")
