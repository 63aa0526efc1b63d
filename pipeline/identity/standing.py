"""Comparison of a trained replica with the present settings, data, versions and frozen tensors."""

from dataclasses import dataclass
from typing import Self

from pydantic import ValidationError

from dprepro.pipeline.data.declaration import prepared_here
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.data.raw import asked_edition
from dprepro.pipeline.identity import versions
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.params import Model, Row, Settings
from dprepro.pipeline.results.schema import Evaluated, Run, Trained


@dataclass(frozen=True)
class Declared:
    """Declaration of a row's data, for replicas that can't be compared with prepared arrays."""

    digest: str  # `Settings.data_digest`
    examples: int  # of the training split
    edition: dict[str, str]  # by raw data set


@dataclass(frozen=True)
class Standing:
    """Declared row and its present data, with which trained replicas are compared."""

    row: Row
    data: Prepared | None  # of the prepared data; None: not prepared here, so arrays are not compared
    declared: Declared | None = None  # compared instead of arrays; None: not compared

    @classmethod
    def here(cls, key: str, settings: Settings) -> Self:
        """Reference for the row ``key``: its data's declaration and, if prepared here, their manifest."""
        row, data = settings.rows[key], settings.split(settings.rows[key].data)
        edition = {name: asked_edition(name, settings) for name in (data.raw, data.public.raw)}
        declared = Declared(settings.data_digest(row.data), data.train, edition)
        return cls(row, prepared_here(row.data, settings), declared)

    def of(self, run: Run | None) -> tuple[Trained, ...]:
        """Valid replicas of a run; empty if there is no run."""
        return tuple(replica for replica in run.replicas if not self.why_not(run, replica)) if run else ()

    def why_not(self, run: Run, replica: Trained) -> str | None:
        """Reason why a replica is not valid and would be trained anew; None: it is valid."""
        return (
            self.misdeclared(run, replica)
            or self.other_data(run, replica)
            or self.other_version(run, replica)
            or self.other_frozen(run, replica)
        )

    def differs(self, run: Run, replica: Trained) -> str | None:
        """Reason why a replica's weights don't fit the present row; None: they fit. Versions don't count."""
        return (
            self.misdeclared(run, replica) or self.other_data(run, replica) or self.other_frozen(run, replica)
        )

    def other_network(self, run: Run) -> bool:
        """Return whether params.yaml now declares another model or method for the row."""
        try:
            model = Model.model_validate(run.model)
        except ValidationError:
            return True
        return run.method != self.row.method or model.essence != self.row.model.essence

    def misdeclared(self, run: Run, replica: Trained) -> str | None:
        """'settings' if params.yaml now declares the replica differently or not at all; otherwise None."""
        try:
            settings = type(self.row.resolved[0]).recorded(replica.settings)
        except ValidationError:
            return "settings"
        declared = {(self.row.level(resolved), seed): resolved for resolved, seed in self.row.trainings}
        same = (
            not self.other_network(run)
            and run.data == self.row.data
            and run.origin(replica).reproducible == self.row.reproducible
            and declared.get(replica.key) == settings
        )
        return None if same else "settings"

    def other_data(self, run: Run, replica: Trained) -> str | None:
        """'data' if the replica was trained on other arrays or differently declared data; otherwise None."""
        origin = run.origin(replica)
        if self.data is not None:
            same = origin.data == self.data.digests
        elif self.declared is None:
            return None
        elif origin.declared is not None:
            same = origin.declared == self.declared.digest
        else:  # a training from before this digest was recorded
            same = (origin.examples, origin.edition) == (self.declared.examples, self.declared.edition)
        return None if same else "data"

    def other_frozen(self, run: Run, replica: Trained) -> str | None:
        """'frozen tensors' if the model's `build` now gives other values, for example from a replaced file.

        None if the values are equal or can't be compared. The comparison needs a replica with frozen tensors,
        and the prepared data, because their shape decides the network's size.
        """
        if not replica.frozen or self.data is None:
            return None
        from dprepro.pipeline.models.frozen import same_fingerprint

        settings = type(self.row.resolved[0]).recorded(replica.settings)
        here = frozen_here(self.row.model, settings, replica.seed, self.data)
        return None if same_fingerprint(here, replica.frozen) else "frozen tensors"

    def other_version(self, run: Run, replica: Trained) -> str | None:
        """'method version' or 'model version', whichever changed since the training; None if neither did."""
        made_by = run.origin(replica).made_by
        here = versions.training(self.row.method, self.row.model.name)
        return next((f"{part} version" for part in here if made_by.get(part) != here[part]), None)


def frozen_here(model: Model, settings: MethodSettings, seed: int, data: Prepared) -> tuple[float, ...]:
    """Fingerprint of the frozen tensors that a model's `build` gives a replica now.

    Raises:
        UserError: as `build_net`.
    """
    from dprepro.pipeline.methods.registry import fresh_net
    from dprepro.pipeline.models.frozen import frozen_fingerprint

    return frozen_fingerprint(fresh_net(seed, model, settings.input_shape(data.input_shape), data.classes))


def measured_otherwise(replica: Evaluated) -> bool:
    """Return whether the replica was measured by another version of the measuring code."""
    return replica.measured_by != versions.MEASURING
