"""Published numbers of other projects and papers (`references.yaml`), compared with our numbers.

`python -m dprepro.pipeline.ledgers.references` writes docs/references.md.
"""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from dp_accounting import get_sigma_gaussian
from pydantic import Field, model_validator
from ruamel.yaml import YAML

from dprepro.fields import Count, Key, Positive, Strict
from dprepro.pipeline.files import write_text
from dprepro.privacy.accounting import classic_epsilon, renyi_epsilon
from dprepro.privacy.clt import clt_mu
from dprepro.privacy.gaussian import gaussian_epsilon
from dprepro.privacy.parameters import Delta
from dprepro.privacy.sampled_gaussian import SampledGaussian
from dprepro.privacy.subsampling import composed_losses

REFERENCES, PAGE = Path("references.yaml"), Path("docs/references.md")
PEERS = Path("reports/benchmarks/peers.md")  # trainings by others' code (`benchmarks/peers.py`)
GRID = 1e-4  # interval of the grid of privacy losses, the default of dp-accounting
DIGITS = 5
INTRODUCTION = """# Published numbers of others

This page compares published numbers of other projects and papers with our numbers for the same settings.
`references.yaml` has sources and settings. `make test` computes each number in the column *here*. A printed ε
usually comes from the accountant of its time: before about 2021 Rényi DP with Mironov's conversion, then the
improved conversion of Canonne et al., today privacy loss distributions. So one setting has three valid upper
bounds, such as 1.19, 0.954 and 0.864. An ε by the central limit theorem is an approximation, not a bound.

Our number is *equal* to the printed one if it differs by at most 1 %, or by the smaller tolerance of its
entry in `references.yaml` (`within`). It is *below* if it is smaller by at most 2 %, for the reason in its
note. Otherwise it **differs**. *Not computed* marks attacks and accuracies. Sampling is Poisson, and
neighbours add or remove one example. The noise is a multiple of the sensitivity.
"""
WAYS = {
    "classic": "Rényi DP, Mironov's conversion",
    "improved": "Rényi DP, improved conversion",
    "pld": "privacy loss distributions",
    "clt": "central limit theorem",
    "delta": "privacy loss distributions",
    "sigma": "closed form",
}
VERDICTS = {"differs": "**differs**", "beside": "not computed"}


class Source(Strict):
    """Publication or repository."""

    name: str
    link: Annotated[str, Field(pattern="^https://")]
    place: str  # file, table or section


class Setting(Strict):
    """Setting of a published number: Poisson samples; neighbours add or remove one example."""

    noise: Positive | None = None  # noise multiplier: standard deviation divided by the sensitivity
    examples: Count | None = None  # N
    batch: Count | None = None  # expected batch size
    steps: Count | None = None
    delta: Delta | None = None
    epsilon: Positive | None = None

    def __str__(self) -> str:
        """Text such as ``noise 1.1, batch 256 of 60,000, 14,062 steps, δ 1e-05``."""
        parts = [
            *([f"noise {self.noise:.10g}"] if self.noise else []),
            *([f"batch {self.batch:,} of {self.examples:,}"] if self.examples and self.batch else []),
            *([f"{self.steps:,} steps" if self.steps > 1 else "1 step"] if self.steps else []),
            *([f"ε {self.epsilon:g}"] if self.epsilon else []),
            *([f"δ {self.delta:g}"] if self.delta else []),
        ]
        return ", ".join(parts)


class Reference(Strict):
    """One published number."""

    source: Key
    quantity: str = "epsilon"
    printed: Positive
    by: Literal["classic", "improved", "pld", "clt", "delta", "sigma"] | None = None  # None: not computed
    setting: Setting
    relation: Literal["equal", "below", "differs", "beside"]
    within: Annotated[float, Field(gt=0, lt=1)] | None = None  # largest relative difference
    why: str = ""

    @model_validator(mode="after")
    def _complete(self) -> "Reference":
        computed = self.by is not None
        if (self.relation == "beside") == computed or computed != (self.within is not None):
            raise ValueError("by and within: go with every relation but 'beside'")
        if self.relation == "differs" and not self.why:
            raise ValueError("why: missing; a difference has an explanation")
        return self


class References(Strict):
    """Contents of `references.yaml`."""

    sources: dict[Key, Source]
    references: dict[Key, Reference]


def read_references(root: Path = Path()) -> References:
    """Read and check `references.yaml` in ``root``."""
    text = (root / REFERENCES).read_text(encoding="utf-8")
    return References.model_validate(YAML(typ="safe", pure=True).load(text))


@lru_cache(maxsize=256)
def computed(reference: Reference) -> float:
    """Our number for the setting of a reference.

    Args:
        reference: the reference with its setting.

    Returns:
        The number.

    Raises:
        ValueError: the reference isn't computed, or its setting is incomplete.
    """
    setting = reference.setting
    if reference.by == "sigma":
        return float(get_sigma_gaussian(_given(setting.epsilon), _given(setting.delta)))
    spending = SampledGaussian(
        sampling="poisson",
        noise_multiplier=_given(setting.noise),
        examples=int(_given(setting.examples)),
        batch=int(_given(setting.batch)),
    )
    steps, delta = int(_given(setting.steps)), _given(setting.delta)
    if reference.by == "classic":
        return _given(classic_epsilon(spending, steps, delta))
    if reference.by == "improved":
        return _given(renyi_epsilon(spending, steps, delta))
    if reference.by == "clt":
        return gaussian_epsilon(_given(clt_mu(spending, steps)), delta)
    losses = composed_losses(spending, steps, GRID)
    if reference.by == "delta":
        return float(losses.delta(np.array([_given(setting.epsilon)]))[0])
    return losses.epsilon(delta)


def page(references: References, root: Path = Path()) -> str:
    """Text of docs/references.md; its last section is the file `PEERS` in ``root``."""
    lines = [INTRODUCTION]
    for key, source in references.sources.items():
        mine = [entry for entry in references.references.values() if entry.source == key]
        lines += [f"## {source.name}: {source.place}", "", f"<{source.link}>", ""]
        lines += [
            "| quantity | setting | printed | here | by | relation |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for entry in mine:
            here = "–" if entry.by is None else f"{computed(entry):.{DIGITS}g}"
            way = "–" if entry.by is None else WAYS[entry.by]
            verdict = VERDICTS.get(entry.relation, entry.relation)
            relation = ". ".join(filter(None, (verdict, entry.why)))
            cells = (entry.quantity, str(entry.setting), f"{entry.printed:.10g}", here, way, relation)
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines) + "\n" + (root / PEERS).read_text(encoding="utf-8")


def _given(value: float | None) -> float:
    if value is None:
        raise ValueError("a setting that the reference's way needs is missing")
    return value


if __name__ == "__main__":
    write_text(PAGE, page(read_references()))
