"""A finished run -> what its weights are worth: accuracies by each method's test protocol."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from pydantic import ValidationError

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError, shown
from pipeline.identity import versions
from pipeline.identity.standing import measured_otherwise
from pipeline.methods.base import Execution, Method
from pipeline.methods.registry import build_method
from pipeline.methods.rooms import method_settings
from pipeline.params import Model, Settings
from pipeline.privacy.gradients import Tensors
from pipeline.privacy.laplace import Releases
from pipeline.privacy.spending import Spending
from pipeline.results import records
from pipeline.results.schema import Evaluated, Evaluation
from pipeline.results.weights import existing_weights, read_weights
from pipeline.training.loop import Replica, accuracy, grouped, make_task, predictor

# A replica has converged when its last validation accuracy is above so many times chance.
CONVERGED = 1.5


def evaluate(
    key: str,
    settings: Settings,
    data: Prepared,
    execution: Execution,
    root: Path = Path(),
    show: Callable[[str], None] = lambda name: None,
) -> Path:
    """Measure the replicas of a row that nobody has measured yet; returns the path of what is kept.

    ``show`` is told the name of each of the row's replicas once it is measured.

    Raises:
        UserError: the row has not been trained, or on other data than those here; weights that are to be
            measured are missing or damaged.
    """
    row = settings.row(key)
    run = records.read_run(key, root)
    if run is None:
        raise UserError(f"{records.run_path(key, root)}: not there; run `dprepro train {key}` first")
    before = records.read_evaluation(key, root)
    kept = {(one.level, one.seed): one for one in before.replicas} if before else {}
    wanted = []
    for one in run.replicas:
        old = kept.get((one.level, one.seed))
        if old is None or old.weights != one.weights or measured_otherwise(old):
            wanted.append(one)
        else:
            show(f"{one.level}/seed={one.seed}")
    if any(run.origin(one).data != data.digests for one in wanted):
        raise UserError(
            f"{records.run_path(key, root)}: trained on other data than data/prepared/{row.data}; "
            f"run `dprepro train {key}`"
        )
    if wanted:
        weights = [
            read_weights(existing_weights(key, one.level, one.seed, root), one.weights, execution.device)
            for one in wanted
        ]
        kind = method_settings()[row.method]
        try:
            members = [Replica(one.level, one.seed, kind.model_validate(one.settings)) for one in wanted]
        except ValidationError as problem:
            raise UserError(
                f"{records.run_path(key, root)}: trained with other settings than params.yaml has now; "
                f"run `dprepro train {key}`"
            ) from problem
        trained = dict(zip(members, wanted, strict=True))
        tensors = dict(zip(members, weights, strict=True))
        for part in _parts(members, execution):
            own = [tensors[member] for member in part]
            metrics = measure(part, own, row.model, row.method, row.reproducible, data, execution)
            for member, found in zip(part, metrics, strict=True):
                one = trained[member]
                kept[one.level, one.seed] = Evaluated(
                    level=one.level,
                    seed=one.seed,
                    weights=one.weights,
                    measured_by=versions.MEASURING,
                    metrics={**found, **noise(one.spending)},
                )
                show(member.name)
    names = [(one.level, one.seed) for one in run.replicas]
    return records.write(Evaluation(row=key, replicas=tuple(kept[name] for name in names)), root)


def _parts(members: Sequence[Replica], execution: Execution) -> Iterator[list[Replica]]:
    """Replicas that are measured at once: of one group, and no more than the device takes."""
    for group in grouped(members):
        size = execution.replicas_at_once or len(group)
        for first in range(0, len(group), size):
            yield group[first : first + size]


def measure(
    members: Sequence[Replica],
    weights: Sequence[Tensors],
    model: Model,
    method: str,
    reproducible: bool,
    data: Prepared,
    execution: Execution,
) -> list[dict[str, float]]:
    """Metrics of trained replicas of one model, whose ``weights`` come in the same order.

    Raises:
        UserError: weights are another network's.
    """
    places = {member: place for place, member in enumerate(members)}
    found: dict[int, dict[str, float]] = {}
    for group in grouped(members):
        own = [places[member] for member in group]
        task = make_task(group, model, reproducible, data, execution)
        for place in own:
            _check_fit(weights[place], task.parameters, members[place])
        trained = build_method(method, task, [member.settings for member in group], model.normalization)
        stacked = {name: torch.stack([weights[place][name] for place in own]) for name in weights[own[0]]}
        columns = _accuracies(trained, stacked, data, execution)
        for index, place in enumerate(own):
            found[place] = {name: column[index].item() for name, column in columns.items()}
    return [found[place] for place in range(len(members))]


def _check_fit(weights: Tensors, wanted: Tensors, member: Replica) -> None:
    """Make sure that weights are those of the network; ``wanted`` is (R, ...) each."""
    for name, value in wanted.items():
        found = weights.get(name)
        if found is None or found.shape != value.shape[1:]:
            raise UserError(f"{member.name}: the weights are another network's: {shown(name)} doesn't fit")


def noise(spending: Spending | Releases | None) -> dict[str, float]:
    """Of each released quantity the noise on a coordinate: the median of the standard deviations.

    In spans of the exact values: above 1 a single noisy value says next to nothing.
    """
    if not isinstance(spending, Releases):
        return {}
    return {f"noise_{one.quantity}": one.noise[1] / one.span for one in spending.laplace}


def _accuracies(method: Method, model: Tensors, data: Prepared, execution: Execution) -> Tensors:
    """(R,) each: accuracies, as means over the draws of the noise at test where the method has any."""
    replicas = len(next(iter(model.values())))
    draws: dict[str, list[torch.Tensor]] = {"validation": [], "test": []}
    for draw in range(method.test_draws):
        with torch.no_grad():
            network = method.network(model, draw)
        for split, values in draws.items():
            values.append(accuracy(predictor(method, network), replicas, data.splits[split], execution))
    found = {split: torch.stack(values) for split, values in draws.items()}
    columns = {f"{split}_accuracy": values.mean(0) for split, values in found.items()}
    columns["converged"] = (columns["validation_accuracy"] > CONVERGED / data.classes).double()
    if method.test_draws > 1:
        columns["test_accuracy_draws_std"] = found["test"].std(0)
    for name, predict in method.variants(model).items():
        with torch.no_grad():
            columns[f"test_accuracy_{name}"] = accuracy(predict, replicas, data.splits["test"], execution)
    return columns
