"""A made-up project of the Laplace mechanisms: rows of Phan et al. that release, and pSGD beside them."""

from collections.abc import Iterator
from math import prod, sqrt
from pathlib import Path
from typing import Any

from pipeline.params import Settings, parse
from pipeline.privacy.statements import statement
from pipeline.reporting.vocabulary import words
from pipeline.results.schema import Ledger, Record, Released
from tests.reporting.made_up import dpsgd

ADLM, ILM, PSGD = "phan-f4a-adlm", "phan-f4a-ilm", "phan-f4a-psgd"
SOUND, CODE, RUN = "phan-f4a-ilm-sound", "phan-f4a-ilm-code", "phan-f4a-ilm-code-run"
FIGURE = "phan-f3"
LATE, EARLY = "phan-f4b-adlm", "phan-f4b-psgd"
SHARED, LOCAL, NOBODY = (words(statement(key)) for key in ("shared_noise", "local_at_claimed", "nobody"))
PICTURE = (2, 3)  # of the made-up relevances
PAPER = {"variant": "paper", "sensitivity": "maps"}
AS_CODE = {"variant": "code", "sensitivity": 9800}
# key: table, label, method, settings, test accuracy in percent by epsilon
ROWS: dict[str, tuple[str, str, str, dict[str, Any], dict[float, float]]] = {
    ADLM: ("f4a", "AdLM", "adlm", PAPER, {0.25: 90.0, 0.5: 93.0, 8: 97.0}),
    ILM: ("f4a", "ILM", "ilm", PAPER, {0.25: 88.0, 0.5: 92.0, 8: 96.0}),
    SOUND: ("f4a", "ILM, sound", "ilm", {"variant": "sound"}, {0.25: 10.0, 8: 12.0}),
    CODE: ("f4a", "ILM, as in the code", "ilm", AS_CODE, {0.25: 88.0, 8: 96.0}),
    RUN: ("f4a", "ILM, as the code runs", "ilm", {**AS_CODE, "exact": "loss"}, {0.25: 93.0, 8: 96.5}),
    PSGD: ("f4a", "pSGD", "dpsgd", {}, {0.25: 82.0, 0.5: 86.0, 8: 97.0}),
    FIGURE: ("f3", "AdLM", "adlm", {**PAPER, "note_relevance": True}, {0.25: 20.0, 8: 50.0}),
    LATE: ("f4b", "AdLM", "adlm", PAPER, {0.5: 93.0}),
    EARLY: ("f4b", "pSGD", "dpsgd", {}, {0.5: 88.0}),
}


def settings() -> Settings:
    """The project's settings."""
    network = dpsgd.row(
        "response",
        paper="phan2017",
        table="pretrained",
        label="CNN",
        method="noisy_weights",
        model={"name": "adlm_cnn", "normalization": "response"},
        seeds=1,
        reproducible=True,
        settings={"batch": 100, "epochs": 1, "learning_rate": 0.001, "draws": 1},
        levels=[{"sigma": 0}],
    )
    rows = {"network": network}
    for key, (table, label, method, variant, accuracies) in ROWS.items():
        normalization = "batch_bn" if variant.get("variant") == "code" else "response"
        rows[key] = network | {
            "table": table,
            "label": label,
            "data": "mnist-relevance" if method == "adlm" else "mnist",
            "method": method,
            "model": {"name": "adlm_cnn", "normalization": normalization},
            "seeds": 2,
            "reproducible": False,
            "settings": {"batch": 1800, "epochs": 600, "learning_rate": 0.001, **variant},
            "levels": [{"epsilon": level} for level in accuracies],
        }
    relevances = {"mnist-relevance": {"data": "mnist", "row": "network"}}
    return parse({**dpsgd.DATA, "relevances": relevances, "rows": rows})


def record(key: str, declared: Settings) -> Record:
    """A row's record, seeds .2 points apart."""

    def reached(own: Any, seed: int) -> tuple[dict[str, float], Ledger]:
        spent = ledger(declared.rows[key].method, own)
        share = ROWS[key][-1][own.epsilon] / 100 + 0.002 * seed
        noise = {f"noise_{release.quantity}": release.noise[1] / release.span for release in spent.releases}
        return {"test_accuracy": share, "validation_accuracy": share, "converged": 1.0, **noise}, spent

    return dpsgd.made(key, declared, reached)


def ledger(method: str, own: Any) -> Ledger:
    """What a training spends: Gaussian noise in each step, or Laplace noise once."""
    if method == "dpsgd":
        return dpsgd.ledger(own.epsilon)
    shares = {"relevances": 0.25, "inputs": 0.25, "labels": 0.5}
    if method == "ilm":
        shares = {"inputs": 0.5, "labels": 0.5}
    code = own.variant == "code"
    releases = tuple(
        _released(name, share * own.epsilon, code, own.variant == "sound", own.exact == "loss")
        for name, share in shares.items()
    )
    bound = None if code else sum(release.epsilon_upper or 0.0 for release in releases)
    return dpsgd.ledger(
        own.epsilon,
        event="inputs 784 x Laplace(223), labels 2 x Laplace(1)",
        noise_multiplier=None,
        sampling_rate=None,
        steps=18000,
        delta=0.0,
        neighbouring="replace one",
        claimed_by="laplace",
        epsilon_upper=bound,
        accountant=None if code else "basic composition (closed form)",
        accountants=(),
        reasons=(statement("shared_noise"),) if code else (),
        releases=releases,
        protects=statement("nobody" if code else "local_at_claimed"),
        spent=() if bound is None else tuple((100 * note, bound) for note in (1, 2, 3, 4)),
    )


def _released(quantity: str, epsilon: float, code: bool, sound: bool, exact: bool) -> Released:
    """Noise is the same on every coordinate, but on inputs that relevances go before."""
    if quantity == "relevances":  # b = 2 d / (N e1), of means that one example moves by 1
        b = 2 * 784 / 55000 / epsilon
        return Released(
            quantity=quantity, claimed=epsilon, epsilon_upper=784 / b, noise=(sqrt(2) * b,) * 3, span=0.5
        )
    moved, b = (784, 784.0) if quantity == "inputs" else (2, 2.0)
    if not sound:
        b = (9800 if code else 50176) / 1800 if quantity == "inputs" else 1812.5 / 1800
    b = 0.0 if exact and quantity == "labels" else b / epsilon
    return Released(
        quantity=quantity,
        claimed=epsilon,
        epsilon_upper=None if code else moved / b,
        noise=(0.5 * b, b, 20 * b) if quantity == "inputs" and not sound else (b, b, b),
        span=1.0,
    )


def history(record: Record) -> Iterator[dpsgd.Line]:
    """Releases are spent at once and learnt from slowly; the others end soon."""
    for replica in record.replicas:
        own, once = (replica.level, replica.seed), bool(replica.ledger.releases)
        for note in (1, 2, 3, 4):
            here = (*own, 100 * note, (150.0 if once else 15.0) * note)
            share = note / 4 if once else 1.0
            yield *here, "validation_accuracy", replica.metrics["test_accuracy"] * share
        if replica.settings.get("note_relevance"):
            for place in range(prod(PICTURE)):
                row, column = divmod(place, PICTURE[1])
                yield *own, 400, 600.0, f"relevance/0/{row}/{column}", place + 10.0 * replica.seed


def fill(root: Path) -> Settings:
    """The whole example; all rows run but the network's."""
    declared = settings()
    for key in ROWS:
        made = record(key, declared)
        dpsgd.put(made, root, history(made))
    return declared
