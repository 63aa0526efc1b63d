"""`python -m benchmarks.final_model`: final models of a small CNN on MNIST, audited from a worst-case start.

The setting is that of Annamalai and De Cristofaro (2024, arXiv 2405.14106), Table 1: 1,000 examples, one
canary in or out, 200 models, each step on all examples. Their attack shows an epsilon of 7.21, where 10 is
proven. Ours has fewer steps and a smaller network, and takes a minute or two of one core.
"""

import io
import json
from pathlib import Path
from typing import Annotated, Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import typer
from scipy.stats import norm
from torch import Tensor, nn

import dprepro
from dprepro.auditing.canaries import gaussian_mu
from dprepro.auditing.epsilon_bounds import by_gaussian, errors_at
from dprepro.pipeline.data.prepared import PREPARED
from dprepro.pipeline.files import write_text

RECORD, PICTURE = (Path(f"reports/benchmarks/final_model.{kind}") for kind in ("json", "svg"))
EPSILON, DELTA, ALPHA, PUBLISHED = 10.0, 1e-5, 0.05, 7.21
EXAMPLES, STEPS, RATE, CLIP = 1000, 2, 0.5, 1.0


def network() -> nn.Sequential:
    """CNN of 5,178 weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def images(first: int, count: int) -> tuple[Tensor, Tensor]:
    """Training images of MNIST in [0, 1] and their labels: ``count`` examples from position ``first`` on."""
    inputs, labels = (
        np.load(PREPARED / f"mnist/train.{name}.npy", mmap_mode="r") for name in ("inputs", "labels")
    )
    rows = slice(first, first + count)
    return torch.from_numpy(np.array(inputs[rows])).float() / 255, torch.from_numpy(np.array(labels[rows]))


def audit(
    runs: Annotated[int, typer.Option(min=16, help="Models.")] = 200,
    draw: Annotated[bool, typer.Option(help="Draw the recorded scores anew; train nothing.")] = False,
) -> None:
    """Audit final models and write scores, bounds and the ROC to reports/benchmarks."""
    if not draw:
        write_text(RECORD, json.dumps(audited(runs), indent=1) + "\n")
    write_text(PICTURE, picture(json.loads(RECORD.read_text())))
    print(f"benchmarks: {RECORD}, {PICTURE}")


def audited(runs: int) -> dict[str, Any]:
    """Audit ``runs`` final models and return the record."""
    net = network()
    start = dprepro.worst_start(net, *images(EXAMPLES, 10_000), epochs=5).state_dict()
    noise = dprepro.noise_multiplier(EPSILON, examples=EXAMPLES, batch=EXAMPLES, delta=DELTA, steps=STEPS)
    generator = torch.Generator().manual_seed(0)
    # exact sums of the first step, which are equal in all runs, by number of examples
    first: dict[int, dict[str, Tensor]] = {}

    def train(inputs: Tensor, labels: Tensor) -> nn.Module:
        net.load_state_dict(start)
        for step in range(STEPS):
            known = first.get(len(labels)) if step == 0 else None
            sums = known or dprepro.clipped_sum(net, inputs, labels, clip=CLIP).sums
            if step == 0:
                first[len(labels)] = sums
            with torch.no_grad():
                for name, weights in net.named_parameters():
                    noisy = sums[name] + noise * CLIP * torch.randn(weights.shape, generator=generator)
                    weights.sub_(RATE / EXAMPLES * noisy)
        return net

    found = dprepro.audit_model(
        train,
        *images(0, EXAMPLES),
        delta=DELTA,
        epsilon_claimed=EPSILON,
        canaries=1,
        kind="extreme",
        runs=runs,
    )
    return {
        "epsilon_claimed": EPSILON,
        "delta": DELTA,
        "examples": EXAMPLES,
        "steps": STEPS,
        "noise_multiplier": noise,
        "models": runs,
        "shown": found.by,
        "could_show": found.could_show,
        "published": PUBLISHED,
        "as_published": as_published(found.without, found.within),
        "seconds": round(found.seconds),
        "without": found.without.round(4).tolist(),
        "within": found.within.round(4).tolist(),
    }


def as_published(without: np.ndarray, within: np.ndarray) -> float:
    """Epsilon at the threshold that is best on the same scores, as in published audits.

    It is no bound, because the choice of the threshold is not corrected for.
    """
    found = [
        by_gaussian(errors_at(without, within, threshold), ALPHA, DELTA)
        for threshold in np.concatenate([without, within])
    ]
    return max(found)


def picture(record: dict[str, Any]) -> str:
    """SVG of the attack's ROC on logarithmic axes, beside the trade-off curve of the proven epsilon."""
    without, within = np.array(record["without"]), np.array(record["within"])
    thresholds = np.sort(np.concatenate([without, within, [np.inf]]))[::-1]
    rates = np.geomspace(1e-3, 1, 200)
    mu = gaussian_mu(record["epsilon_claimed"], record["delta"])
    allowed = np.minimum(1, np.exp(record["epsilon_claimed"]) * rates + record["delta"])
    with plt.rc_context({"svg.hashsalt": "final_model", "svg.fonttype": "none"}):
        figure, panel = plt.subplots(figsize=(5.4, 4), layout="constrained")
        panel.plot(
            rates, allowed, color="#c9504d", label=f"allowed by ε = {record['epsilon_claimed']:g}, δ = 1e-5"
        )
        panel.plot(rates, norm.sf(norm.isf(rates) - mu), color="#d9822b", label="of the Gaussian of that ε")
        panel.step(
            [(without >= threshold).mean() for threshold in thresholds],
            [(within >= threshold).mean() for threshold in thresholds],
            where="post",
            color="#3b82c4",
            label=f"attack on {record['models']} final models",
        )
        panel.plot(rates, rates, color="#8a8f98", linestyle=":", label="guessing")
        panel.set(xscale="log", yscale="log", xlim=(1e-3, 1), ylim=(1e-3, 1.1))
        panel.set(xlabel="false-positive rate", ylabel="true-positive rate")
        panel.legend(frameon=False, loc="lower right", fontsize=8)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
        plt.close(figure)
    return drawn.getvalue()


if __name__ == "__main__":
    typer.run(audit)
