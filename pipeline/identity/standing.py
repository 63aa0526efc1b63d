"""Whether a replica's numbers are those that what is here would make."""

from dataclasses import dataclass

from pydantic import ValidationError

from pipeline.identity import versions
from pipeline.params import Model, Row
from pipeline.results.schema import Evaluated, Run, Trained


@dataclass(frozen=True)
class Standing:
    """A row as it is declared here, and the data there are for it."""

    row: Row
    data: dict[str, str] | None  # digests of its prepared arrays; None: not prepared here, and not compared

    def of(self, run: Run | None) -> tuple[Trained, ...]:
        """The replicas of a run that stand; none where nothing ran."""
        return tuple(replica for replica in run.replicas if not self.why_not(run, replica)) if run else ()

    def why_not(self, run: Run, replica: Trained) -> str | None:
        """Why a replica would be trained anew; None: it stands."""
        reasons = (self.misdeclared, self.other_data, self.other_version)
        return next((why for reason in reasons if (why := reason(run, replica))), None)

    def misdeclared(self, run: Run, replica: Trained) -> str | None:
        """What params.yaml says differently now."""
        try:
            model = Model.model_validate(run.model)
            settings = type(self.row.resolved[0]).model_validate(replica.settings)
        except ValidationError:
            return "settings"
        if (run.method, run.data) != (self.row.method, self.row.data) or model != self.row.model:
            return "settings"
        if run.origin(replica).reproducible != self.row.reproducible:
            return "settings"
        declared = {(self.row.level(resolved), seed): resolved for resolved, seed in self.row.trainings}
        if declared.get(replica.key) != settings:
            return "settings"
        return None

    def other_data(self, run: Run, replica: Trained) -> str | None:
        """Whether it was trained on other arrays."""
        return "data" if self.data is not None and run.origin(replica).data != self.data else None

    def other_version(self, run: Run, replica: Trained) -> str | None:
        """Which version has changed since: 'method version' or 'model version'."""
        made_by = run.origin(replica).made_by
        here = versions.training(self.row.method, self.row.model.name)
        return next((f"{part} version" for part in here if made_by.get(part) != here[part]), None)


def measured_otherwise(replica: Evaluated) -> bool:
    """Whether another version of measuring measured it."""
    return replica.measured_by != versions.MEASURING
