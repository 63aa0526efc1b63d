"""A finished run -> its record: test accuracy by each method's test protocol, and the privacy ledger."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError, writing
from pipeline.files import digest_file, write_bytes
from pipeline.ledgers.ledger import empty_ledger, make_ledger, release_ledger
from pipeline.methods.base import Execution, Method
from pipeline.methods.registry import build_method
from pipeline.methods.rooms import METHOD_SETTINGS
from pipeline.params import Settings
from pipeline.privacy.gradients import Tensors
from pipeline.privacy.laplace import Releases
from pipeline.privacy.spending import Spending
from pipeline.results import records
from pipeline.results.records import Ledger, Record
from pipeline.training import runs
from pipeline.training.loop import Replica, accuracy, grouped, make_task, predictor
from pipeline.training.runs import RUNS, Run, Trained

SEARCHED = (
    "hyper-parameter search ({search}): its runs, on the same training data and judged on validation data"
)
# A replica has converged when its last validation accuracy is above so many times chance.
CONVERGED = 1.5
OTHERWISE = "any other choice of model and hyper-parameters, where it looked at these data"
VOCABULARY = "the vocabulary: its words and their order are counted on the private training texts"
PUBLIC_START = "the weights it starts from, of {row!r} on {data!r}: trained without privacy, taken as public"
PUBLIC_RELEVANCE = (
    "the network behind the relevances, of {row!r} on {data!r}: trained without privacy, taken as public"
)
INFORMED_RELEVANCE = (
    "the network behind the relevances, of {row!r} on {data!r}: trained without privacy on these private "
    "images, so that one of them may move every mean relevance by its whole range"
)
TEST_RELEVANCE = "{test_examples_seen} test examples, which the network behind the relevances was trained on"
OWN_PUBLIC = "the public split: {count} examples of the same data set, taken as public: nothing protects them"
SEEDED = "the noise and the samples were seeded by a public constant, so they protect nobody"


def evaluate(key: str, settings: Settings, data: Prepared, execution: Execution, root: Path = Path()) -> Path:
    """Write the record and history of a trained row; returns the record's path.

    Raises:
        UserError: the row has not been trained, or with other settings or data than those here.
    """
    folder = root / RUNS / key
    run = runs.read(folder)
    row = settings.row(key)
    if run.provenance.config != settings.row_digest(key):
        raise UserError(
            f"{folder}: trained with other settings than params.yaml has now; run `dprepro train {key}`"
        )
    if run.provenance.data != data.digests:
        raise UserError(
            f"{folder}: trained on other data than data/prepared/{row.data}; run `dprepro train {key}`"
        )
    weights = runs.weights(folder, execution.device)
    results = [
        records.Replica(
            level=trained.level,
            seed=trained.seed,
            settings=trained.settings,
            metrics=metrics,
            ledger=ledger(trained, row.search, row.reproducible, data),
            seconds=round(trained.seconds, 3),
            started=trained.started,
            ended=trained.ended,
        )
        for trained, metrics in zip(run.replicas, _metrics(run, weights, data, execution), strict=True)
    ]
    history = records.history_path(key, root)
    with writing(history):
        write_bytes(history, (folder / "history.csv").read_bytes())
    record = Record(
        row=key,
        paper=row.paper,
        table=row.table,
        label=row.label,
        data=row.data,
        model=run.model.model_dump(mode="json"),
        method=run.method,
        budget=row.budget,
        search=row.search,
        replicas=results,
        history=digest_file(history),
        provenance=run.provenance,
    )
    return records.write(record, root)


def _metrics(run: Run, weights: Tensors, data: Prepared, execution: Execution) -> list[dict[str, float]]:
    """Metrics of every replica, in the order of ``run.json``."""
    members = [
        Replica(one.level, one.seed, METHOD_SETTINGS[run.method].model_validate(one.settings))
        for one in run.replicas
    ]
    found: list[dict[str, float]] = []
    for group in grouped(members):  # in whose order training wrote them
        own = slice(len(found), len(found) + len(group))
        task = make_task(group, run.model, run.provenance.reproducible, data, execution)
        method = build_method(
            run.method, task, [member.settings for member in group], run.model.normalization
        )
        columns = _accuracies(method, {name: value[own] for name, value in weights.items()}, data, execution)
        found += [
            {name: values[index].item() for name, values in columns.items()} for index in range(len(group))
        ]
    return [{**own, **noise(one.spending)} for own, one in zip(found, run.replicas, strict=True)]


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
    draws: dict[str, list[Tensor]] = {"validation": [], "test": []}
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


def ledger(trained: Trained, search: str | None, reproducible: bool, data: Prepared) -> Ledger:
    """What privacy a replica really buys, from the numbers of the mechanism that ran."""
    reason = trained.broken or (SEEDED if reproducible else None)
    uncounted = [*_uncounted(search, data), *_behind_relevances(trained, data), *trained.uncounted]
    if isinstance(trained.spending, Releases):
        releases, protects = trained.spending, trained.protects
        if reproducible:
            releases, protects = releases.known(), None
        return release_ledger(releases, trained.steps, reason, uncounted, protects)
    if trained.spending is None or trained.delta is None:
        return empty_ledger(trained.steps, trained.broken)
    return make_ledger(
        trained.spending,
        trained.steps,
        trained.delta,
        trained.claimed_by,
        reason=reason,
        uncounted=uncounted,
    )


def _uncounted(search: str | None, data: Prepared) -> Iterator[str]:
    """Uses of private data outside the mechanism, other than the method's own."""
    if search:
        yield SEARCHED.format(search=search)
    yield OTHERWISE
    if "text" in data.manifest:
        yield VOCABULARY
    if "public" in data.manifest and len({each["title"] for each in data.manifest["raw"].values()}) == 1:
        yield OWN_PUBLIC.format(count=len(data.splits["public"]))
    if data.start is not None:
        yield PUBLIC_START.format(**data.manifest["start"])


def _behind_relevances(trained: Trained, data: Prepared) -> Iterator[str]:
    """What the network behind the relevances has seen, where a method looks at them."""
    if "relevance" not in data.manifest or "relevance_share" not in trained.settings:
        return
    found = data.manifest["relevance"]
    yield (INFORMED_RELEVANCE if found["informed"] else PUBLIC_RELEVANCE).format(**found)
    if found["test_examples_seen"]:
        yield TEST_RELEVANCE.format(**found)
