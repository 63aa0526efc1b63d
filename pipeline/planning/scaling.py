"""A row as the small-batch row that foretells it (Sander et al. 2022, section 3.4)."""

from typing import Any

from pipeline.errors import UserError
from pipeline.fields import Strict
from pipeline.ledgers.ledger import bounds_of
from pipeline.methods.tan.settings import TanSettings
from pipeline.params import PARAMS, Row, Settings
from pipeline.privacy.sampled_gaussian import SampledGaussian


class Simulation(Strict):
    """An entry of `rows` in params.yaml, and what it takes."""

    key: str
    entry: dict[str, Any]
    cost: float  # examples differentiated, over those of the levels it stands for
    # (least, largest) epsilon of a level that is trained on the private data; None: there is no noise
    epsilon: tuple[float, float] | None


def simulation(key: str, settings: Settings, batch: int) -> Simulation:
    """The row ``key`` at batch size ``batch``: each level that is larger, with batch and noise scaled alike.

    Raises:
        UserError: there is no such row, it is of another method, or none of its levels is larger.
    """
    row = settings.row(key)
    if row.method != "tan":
        raise UserError(f"{PARAMS}: rows.{key}.method: {row.method!r} can't be scaled; allowed: 'tan'")
    whole = [
        (level, full) for level, full in zip(row.levels, row.resolved, strict=True) if full.batch > batch
    ]
    if not whole:
        largest = max(full.batch for full in row.resolved)
        raise UserError(f"--batch {batch}: no level of {key!r} is larger; allowed: 1 to {largest - 1}")
    # levels at the same TAN become one
    scaled: dict[TanSettings, dict[str, Any]] = {}
    for level, full in whole:
        changed = {"batch": batch, "sigma": float(f"{full.sigma * batch / full.batch:.10g}")}
        scaled.setdefault(row.configured(level, changed), level | changed)
    examples = settings.split(row.data).train
    spent = [_epsilon(smaller, examples) for smaller in scaled if smaller.private]
    return Simulation(
        key=f"{key}-b{batch}",
        entry=_entry(key, row, batch, scaled),
        cost=sum(map(_passes, scaled)) / sum(_passes(full) for _, full in whole),
        epsilon=(min(spent), max(spent)) if spent else None,
    )


def _passes(settings: TanSettings) -> int:
    return settings.batch * settings.copies * settings.steps


def _epsilon(settings: TanSettings, examples: int) -> float:
    spending = SampledGaussian(
        sampling="poisson", noise_multiplier=settings.sigma, examples=examples, batch=settings.batch
    )
    bounds, _ = bounds_of(spending, settings.steps, settings.delta)
    return min(bound.epsilon for bound in bounds.values() if bound.epsilon is not None)


def _entry(key: str, row: Row, batch: int, scaled: dict[TanSettings, dict[str, Any]]) -> dict[str, Any]:
    axis = _axis(key, row, list(scaled))
    # what all levels share stands in the settings, but for the axis
    first = next(iter(scaled.values()))
    shared = {
        name: first[name]
        for name in ("batch", "sigma")
        if name != axis and all(level[name] == first[name] for level in scaled.values())
    }
    apart = {"batch", "sigma"} - set(shared)
    settings = {name: value for name, value in row.settings.items() if name not in apart}
    levels = [
        {name: value for name, value in level.items() if name not in shared} for level in scaled.values()
    ]
    simulated = f"simulated at B {batch}"
    kept = row.model_dump(exclude_unset=True, exclude={"axis", "simulates", "settings", "levels"})
    return {
        **kept,
        "label": f"{row.label}, {simulated}",
        **({"variant": ", ".join(filter(None, (row.variant, simulated)))} if row.line else {}),
        "simulates": key,
        **({} if axis == TanSettings.axis else {"axis": axis}),
        "settings": settings | shared,
        "levels": levels,
    }


def _axis(key: str, row: Row, scaled: list[TanSettings]) -> str:
    """The row's own axis, or where its levels are the same there now, a setting in which they differ."""
    declared = row.axis or TanSettings.axis
    for axis in (declared, *TanSettings.model_fields):
        if len({getattr(level, axis) for level in scaled}) == len(scaled):
            return axis
    raise UserError(
        f"{PARAMS}: rows.{key}.levels: no single setting tells them apart once they have one batch"
    )
