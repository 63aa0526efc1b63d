"""`python -m benchmarks.peers`: two networks of Table 5 trained by Opacus and JAX-Privacy, beside our rows.

`benchmarks/peer_training.py` trains the networks with the settings of the committed rows. It runs in a
separate process that imports nothing of this project. The seeds are fixed beforehand, and no run is repeated.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dprepro.accountants.records import SampledGaussian
from dprepro.pipeline.data.prepared import PREPARED
from dprepro.pipeline.data.raw import RAW
from dprepro.pipeline.files import write_text
from dprepro.pipeline.reporting.verdict import Mean, SeedValues, contrast
from dprepro.pipeline.results.records import read_evaluation, read_run

RECORD, PEERS = Path("reports/benchmarks/peers.json"), Path("reports/benchmarks/peers.md")
TRAINING = Path(__file__).with_name("peer_training.py")
LEVEL = "epsilon=1"
ROWS = {"lenet5": "davody-t5-lenet5-equal-planned", "ln-lenet5": "davody-t5-ln-lenet5-equal-planned"}
NAMES = {"lenet5": "LeNet-5", "ln-lenet5": "LN-LeNet-5", "opacus": "Opacus", "jax_privacy": "JAX-Privacy"}
# JAX-Privacy has one seed, because a run takes about five processor minutes
SEEDS: dict[str, tuple[int, ...]] = {"opacus": (0, 1, 2), "jax_privacy": (0,)}
ALONE = {  # one thread
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
TEXT = """\
## A second implementation

LeNet-5 and LN-LeNet-5 of Davody et al. 2020, Table 5, at ε = 1, trained by other code. `make peers`
runs `benchmarks/peer_training.py`, which imports nothing of this project: it has its own networks and its own
reader of MNIST's files, and Opacus or JAX-Privacy samples, clips and adds noise. Training examples, batch,
steps, step size, clipping norm and noise are those of our rows
(`{rows}`).
The seeds were fixed before the runs. `{record}` has each run and the versions.

Accuracies are on the test part. The difference is the peer's mean minus ours, with its 95 % Welch interval
over seeds; a single seed has no interval.

| network | peer | seeds | accuracy in % | our seeds | ours in % | difference in points | CPU s per run |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def settings(network: str, root: Path = Path()) -> dict[str, Any]:
    """Settings of a network's committed row at `LEVEL`, which are the same for all seeds."""
    run = read_run(ROWS[network], root)
    assert run is not None
    found = []
    for training in run.trainings:
        if training.level == LEVEL:
            assert isinstance(training.spending, SampledGaussian)
            own = {key: training.settings[key] for key in ("batch", "learning_rate", "clip")}
            noise = {key: getattr(training.spending, key) for key in ("noise_multiplier", "examples")}
            found.append({**own, **noise, "steps": training.steps, "delta": training.delta})
    assert found
    assert all(each == found[0] for each in found)
    return found[0]


def ours(network: str, root: Path = Path()) -> SeedValues:
    """Accuracies of our row of ``network``."""
    evaluation = read_evaluation(ROWS[network], root)
    assert evaluation is not None
    return SeedValues.of(
        {each.seed: each.metrics["test_accuracy"] for each in evaluation.trainings if each.level == LEVEL}
    )


def train() -> None:
    """Train all missing runs and write reports/benchmarks."""
    wanted = {network: settings(network) for network in ROWS}
    record: dict[str, Any] = {"settings": wanted, "runs": []}
    if RECORD.exists() and (recorded := json.loads(RECORD.read_text()))["settings"] == wanted:
        record = recorded
    known = {(run["peer"], run["network"], run["seed"]) for run in record["runs"]}
    for peer, seeds in SEEDS.items():
        for network in ROWS:
            missing = [seed for seed in seeds if (peer, network, seed) not in known]
            for run in trained(peer, network, missing):
                record["runs"].append(run)
                write_text(RECORD, json.dumps(record, indent=1) + "\n")
    write_text(PEERS, table(record))
    print(f"benchmarks: {RECORD}, {PEERS}")


def trained(peer: str, network: str, seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Train ``seeds``, and yield each result as soon as it is available."""
    if not seeds:
        return
    request = {
        **settings(network),
        "peer": peer,
        "network": network,
        "seeds": seeds,
        "raw": str(RAW / "mnist"),
        "indices": str(PREPARED / "mnist" / "train.indices.npy"),
    }
    process = subprocess.Popen(
        [sys.executable, str(TRAINING)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ALONE},
    )
    assert process.stdin
    assert process.stdout
    with process:
        process.stdin.write(json.dumps(request))
        process.stdin.close()
        for line in process.stdout:
            print(line, end="", flush=True)
            yield {**json.loads(line), "device": f"cpu ({platform.machine()}, 1 thread)"}
    if process.returncode:
        raise SystemExit(f"{TRAINING}: status {process.returncode}")


def table(record: dict[str, Any], root: Path = Path()) -> str:
    """Markdown page about the runs in ``record``."""
    lines = []
    for network in ROWS:
        for peer in SEEDS:
            runs = [run for run in record["runs"] if (run["peer"], run["network"]) == (peer, network)]
            if not runs:
                continue
            theirs = SeedValues.of({run["seed"]: run["test_accuracy"] for run in runs})
            own = ours(network, root)
            difference = contrast([(1, f"{peer} {network}", theirs), (-1, ROWS[network], own)])
            versions = ", ".join(f"{name} {version}" for name, version in runs[0]["versions"].items())
            cells = (
                NAMES[network],
                f"{NAMES[peer]} ({versions})",
                str(len(runs)),
                percent(theirs.mean),
                str(len(own.by_seed)),
                percent(own.mean),
                percent(difference, "+"),
                f"{sum(run['cpu_seconds'] for run in runs) / len(runs):.0f}",
            )
            lines.append(f"| {' | '.join(cells)} |\n")
    return TEXT.format(rows="`, `".join(ROWS.values()), record=RECORD) + "".join(lines)


def percent(value: Mean, sign: str = "") -> str:
    """Value in percent with its interval, such as ``95.90 ± 0.16``; a single seed has no interval."""
    centre = f"{100 * value.value:{sign}.2f}"
    return centre if value.half is None else f"{centre} ± {100 * value.half:.2f}"


if __name__ == "__main__":
    train()
