"""Whether a replica's numbers are those that what is here would make."""

from dataclasses import dataclass, field

from pydantic import ValidationError

from pipeline.identity import equivalences
from pipeline.identity.code import measure_code, train_code
from pipeline.identity.equivalences import Findings
from pipeline.params import Model, Row
from pipeline.results.records import Evaluated, Run, Trained


@dataclass(frozen=True)
class Standing:
    """A row as it is declared here, and the code and data there are for it."""

    key: str
    row: Row
    data: dict[str, str] | None  # digests of its prepared arrays; None: not prepared here, and not compared
    findings: Findings = field(default_factory=equivalences.load)

    def why_not(self, run: Run, one: Trained) -> str | None:
        """Why a replica would be trained anew; None: it stands."""
        return self.misdeclared(run, one) or self.other_data(run, one) or self.other_code(run, one)

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
        if declared.get((one.level, one.seed)) != settings:
            return "settings"
        return None

    def other_data(self, run: Run, one: Trained) -> str | None:
        """Whether it was trained on other arrays."""
        return "data" if self.data is not None and run.origin(one).data != self.data else None

    def other_code(self, run: Run, one: Trained) -> str | None:
        """Which code has changed since, where nobody has proven the new one equal."""
        made = run.origin(one)
        here = train_code(self.row.method, self.row.model.name)
        if self._canonical(made.code) == self._canonical(here.digest):
            return None
        changed = [part for part, digest in here.parts.items() if made.parts.get(part) != digest]
        return f"{changed[0]} code" if made.parts and changed else "code"

    def measured_otherwise(self, one: Evaluated) -> bool:
        """Whether other code measured it, where nobody has proven that here equal."""
        here = measure_code(self.row.method, self.row.model.name).digest
        codes = {self.findings.canonical("evaluate", self.key, code) for code in (one.code, here)}
        return len(codes) > 1

    def _canonical(self, code: str) -> str:
        return self.findings.canonical("train", self.key, code)
