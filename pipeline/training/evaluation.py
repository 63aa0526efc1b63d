"""Accuracies of a finished run's weights, by each method's test protocol."""

from collections.abc import Callable
from math import isclose
from pathlib import Path

import numpy as np
import torch

from dprepro.accountants.laplace import Releases
from dprepro.accountants.records import SampledGaussian
from dprepro.clipping.functional import Tensors
from dprepro.errors import UserError, shown
from dprepro.pipeline.data.prepared import Prepared, Split
from dprepro.pipeline.identity import validity
from dprepro.pipeline.identity.frozen import require_usable
from dprepro.pipeline.identity.validity import reason_unmeasured
from dprepro.pipeline.methods.base import Execution, Method, shares
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.params import Row, Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import (
    CONVERGED,
    Errors,
    EvaluationRecord,
    RowEvaluations,
    Scores,
    TrainingRecord,
)
from dprepro.pipeline.results.weights import read_weights, require, weights_path
from dprepro.pipeline.training.loop import SeedRun, accuracy, batches, make_task
from dprepro.pipeline.training.scores import errors, scores

# tolerance of an accuracy: rounding may change the class of a few images in ten thousand
MEASURED = 1e-3


def evaluate(
    key: str,
    settings: Settings,
    data: Prepared,
    execution: Execution,
    root: Path = Path(),
    show: Callable[[str], None] = lambda name: None,
) -> Path:
    """Measure the trainings of a row that have no valid accuracies; return the path of the record.

    ``show`` is called with the name of each of the row's trainings once it has accuracies.

    Raises:
        UserError: the row has not been trained, or was trained with other data or frozen tensors; weights of
            a recorded training are missing; or weights to be measured are damaged.
    """
    row, run = settings.row(key), records.require_run(key, root)
    own = settings.split(row.data).raw in settings.own
    require(run, root=root)
    measured = records.read_evaluation(key, root).by_key
    pending: list[TrainingRecord] = []
    for trained in run.trainings:
        earlier = measured.get(trained.key)
        unscored = own and earlier is not None and earlier.scores is None
        if reason_unmeasured(earlier, trained) or unscored:
            pending.append(trained)
        else:
            show(f"{trained.level}/seed={trained.seed}")
    require_usable(pending, row, data, root)
    for trained in pending:
        weights = read_weights(weights_path(key, *trained.key, root), trained.weights, execution.device)
        measured[trained.key] = measure(trained, weights, row, data, execution, scored=own)
        show(f"{trained.level}/seed={trained.seed}")
    evaluation = RowEvaluations(row=key, trainings=tuple(measured[trained.key] for trained in run.trainings))
    return records.write(evaluation, root)


def compare(
    key: str,
    settings: Settings,
    data: Prepared,
    execution: Execution,
    show: Callable[[str], None] = lambda name: None,
) -> None:
    """Measure the weights of a row's trainings again, and compare with the recorded accuracies.

    ``show`` is called with the name of each training whose accuracies are as recorded.

    Raises:
        UserError: a metric differs, weights or accuracies are missing, or the row was trained with other data
            or frozen tensors.
    """
    row, run, recorded = settings.row(key), records.read_run(key), records.read_evaluation(key).by_key
    if run is None or not recorded or records.unmeasured(key):
        raise UserError(
            f"{records.evaluation_path(key)}: lacks accuracies; run `dprepro evaluate {key}` first"
        )
    require(run)
    require_usable(run.trainings, row, data)
    own = settings.split(row.data).raw in settings.own
    for trained in run.trainings:
        weights = read_weights(weights_path(key, *trained.key), trained.weights, execution.device)
        measured = measure(trained, weights, row, data, execution, scored=own)
        values, again = _numbers(recorded[trained.key]), _numbers(measured)
        for name in {**values, **again}:
            if not isclose(values.get(name, -1.0), again.get(name, -1.0), abs_tol=MEASURED):
                is_here, reached = (
                    f"{each[name]:g}" if name in each else "missing" for each in (values, again)
                )
                raise UserError(
                    f"{records.evaluation_path(key)}: {trained.level}, seed {trained.seed}: "
                    f"{name} is {is_here}, and its weights reach {reached}"
                )
        show(f"{trained.level}/seed={trained.seed}")


def _numbers(training: EvaluationRecord) -> dict[str, float]:
    """Metrics and scores by name; cells of a confusion matrix as shares of all examples."""
    if training.scores is None:
        return training.metrics
    values = training.scores.model_dump()
    recall = {f"recall of class {at}": share for at, share in enumerate(values.pop("recall", ()))}
    rows = values.pop("confusion", None) or ()
    total = sum(map(sum, rows))
    cells = {
        f"confusion {at}, {to}": count / total for at, row in enumerate(rows) for to, count in enumerate(row)
    }
    scored = {name: value for name, value in {**values, **recall}.items() if value is not None}
    return {**training.metrics, **scored, **cells}


def measure(
    trained: TrainingRecord, weights: Tensors, row: Row, data: Prepared, execution: Execution, scored: bool
) -> EvaluationRecord:
    """Accuracies of a training's ``weights`` by the test protocol of its method.

    If ``scored``, the record has scores of the test split; otherwise it has errors in the test split, if the
    method predicts one class for each example.

    Raises:
        UserError: the weights are another network's.
    """
    settings = method_settings()[row.method].recorded(trained.settings)
    run = SeedRun(*trained.key, settings)
    task = make_task(run, row.model, row.reproducible, data, execution)
    for name, value in task.parameters.items():
        if name not in weights or weights[name].shape != value.shape:
            raise UserError(f"{run.name}: the weights are another network's: {shown(name)} doesn't fit")
    method = settings.build_method(task, row.model.normalization)
    predictions: list[torch.Tensor] = []
    metrics = _accuracies(method, weights, data, execution, predictions.append)
    labels = np.array(data.splits["test"].labels)
    found: Scores | Errors | None = None
    wrong: str | None = None
    if scored:
        outputs = _probabilities(method, weights, data.splits["test"], execution)
        if data.target is None:
            found = scores(outputs, labels)
        else:
            low, high = data.target
            if not np.isfinite(outputs).all():
                raise UserError(f"{run.name}: its outputs are not finite; a lower learning_rate may help")
            found = errors(*(low + (high - low) * each for each in (outputs[:, 0], labels)))
    elif data.target is None and method.test_draws == 1:
        wrong = records.packed(torch.cat(predictions).cpu().numpy(), labels, data.classes)
    return EvaluationRecord(
        row=trained.row,
        level=trained.level,
        seed=trained.seed,
        weights=trained.weights,
        measured_by=validity.MEASURING,
        metrics={**metrics, **noise(trained.spending)},
        scores=found,
        test_errors=wrong,
    )


def _probabilities(method: Method, model: Tensors, split: Split, execution: Execution) -> np.ndarray:
    """(N, K) probabilities of K classes for N examples; (N, 1) for a numeric target."""
    with torch.no_grad():
        network = method.network(model, 0)
        parts = [shares(method.logits(network, inputs)) for _, inputs in batches(split, execution)]
    return torch.cat(parts).cpu().numpy()


def noise(spending: SampledGaussian | Releases | None) -> dict[str, float]:
    """Standard deviation of the noise on each released quantity, divided by the span of its exact values.

    It is the median over the quantity's coordinates. Above 1, a single noisy value has almost no information.
    """
    if not isinstance(spending, Releases):
        return {}
    return {f"noise_{release.quantity}": release.noise[1] / release.span for release in spending.laplace}


def _accuracies(
    method: Method,
    model: Tensors,
    data: Prepared,
    execution: Execution,
    keep: Callable[[torch.Tensor], object],
) -> dict[str, float]:
    """Accuracies by name; means over the draws if the method has noise at test time.

    ``keep`` is called with the (B,) predictions of each batch of the test split.
    """
    draws: dict[str, list[float]] = {split: [] for split in ("validation", "test") if len(data.splits[split])}
    for draw in range(method.test_draws):
        with torch.no_grad():
            network = method.network(model, draw)
        for split, values in draws.items():
            kept = [keep] if split == "test" else []
            values.append(accuracy(method.predictor(network), data.splits[split], execution, *kept))
    accuracies = {split: torch.tensor(values, dtype=torch.float64) for split, values in draws.items()}
    columns = {f"{split}_accuracy": values.mean().item() for split, values in accuracies.items()}
    if data.target is None:
        judged = columns.get("validation_accuracy", columns["test_accuracy"])
        columns["converged"] = float(judged > CONVERGED / data.classes)
    if method.test_draws > 1:
        columns["test_accuracy_draws_std"] = accuracies["test"].std().item()
    for name, predict in method.variants(model).items():
        with torch.no_grad():
            columns[f"test_accuracy_{name}"] = accuracy(predict, data.splits["test"], execution)
    return columns
