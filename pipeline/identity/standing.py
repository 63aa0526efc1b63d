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

    def why_not(self, run: Run, one: Trained) -> str | None:
        """Why a replica would be trained anew; None: it stands."""
        return self.misdeclared(run, one) or self.other_data(run, one) or self.other_version(run, one)

    def misdeclared(self, run: Run, one: Trained) -> str | None:
        """What params.yaml says differently now."""
        try:
            model = Model.model_validate(run.model)
            settings = type(self.row.resolved[0]).model_validate(one.settings)
        except ValidationError:
            return "settings"
        if (run.method, run.data) != (self.row.method, self.row.data) or model != self.row.model:
            return "settings"
        if run.origin(one).reproducible != self.row.reproducible:
            return "settings"
        declared = {(self.row.level(own), seed): own for own, seed in self.row.trainings}
        if declared.get(one.key) != settings:
            return "settings"
        return None

    def other_data(self, run: Run, one: Trained) -> str | None:
        """Whether it was trained on other arrays."""
        return "data" if self.data is not None and run.origin(one).data != self.data else None

    def other_version(self, run: Run, one: Trained) -> str | None:
        """Which version has changed since: 'method version' or 'model version'."""
        made_by = run.origin(one).made_by
        here = versions.training(self.row.method, self.row.model.name)
        return next((f"{part} version" for part in here if made_by.get(part) != here[part]), None)


def measured_otherwise(one: Evaluated) -> bool:
    """Whether another version of measuring measured it."""
    return one.measured_by != versions.MEASURING
