"""What identifies a search, and what its candidates spend; without torch, for verification."""

from math import inf
from typing import Any

from dprepro.accountants.laplace import Releases
from dprepro.pipeline.files import digest_json
from dprepro.pipeline.methods.spending import Guarantee
from dprepro.pipeline.params import Settings
from dprepro.pipeline.params.searched import candidates
from dprepro.pipeline.results.schema import Provenance, TrainingSpent


def definition_of(name: str, settings: Settings, source: Provenance) -> str:
    """Digest of everything that decides the candidates' results; ``source``: provenance of the trainings.

    Settings at their default don't count, so that a new setting invalidates no search, whose candidates would
    be trained and spent again.
    """
    definition, row = settings.searches[name], settings.row(settings.searches[name].row)
    # the row's settings are left out, because they include this search's own choice once it is recorded
    decisive: list[Any] = [definition.row, definition.seeds, row.model.essence, row.method]
    decisive += [row.reproducible, source.made_by, source.data]
    tried = [
        [row.level(configured), configured.model_dump(mode="json", exclude_defaults=True)]
        for _, configured in candidates(name, settings)
    ]
    return digest_json([decisive, tried])


def candidate_spent(guarantee: Guarantee, steps: int) -> TrainingSpent | None:
    """Spending of a training of ``steps`` steps; None if no bound on the training's epsilon holds."""
    mechanism = guarantee.spending
    spending = mechanism.epsilon if isinstance(mechanism, Releases) else mechanism
    if guarantee.broken or spending is None or spending == inf:
        return None
    return TrainingSpent(spending=spending, steps=steps, delta=guarantee.delta or 0.0)
