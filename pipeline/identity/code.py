"""Digests of the code behind a number, by what it was made for: training, measuring, accounting."""

from dataclasses import dataclass
from functools import cache

from pipeline.files import digest_json
from pipeline.identity.syntax import Definition, Sources
from pipeline.ledgers import opinions
from pipeline.methods.rooms import implementation

ENGINE = Definition("pipeline.training.loop", "train_group")
MEASURING = Definition("pipeline.training.evaluation", "measure")
NOISE = Definition("pipeline.training.evaluation", "noise")
LEDGER = Definition("pipeline.ledgers.ledger", "ledger_of")
TOGETHER = Definition("pipeline.ledgers.together", "together")
ACCOUNT = Definition("pipeline.ledgers.accounts", "entry")
AUDIT = Definition("pipeline.audits.rows", "attacks_on")
FETCHING = Definition("pipeline.data.synthetic", "write")
PREPARING = Definition("pipeline.data.prepare", "prepare")
PREPARING_OWN = Definition("pipeline.data.own.prepare", "prepare")
STARTING = Definition("pipeline.pretrained.starts", "make_start")
AVERAGING = Definition("pipeline.pretrained.average_relevance", "make_relevance")


@dataclass(frozen=True)
class Code:
    """The code behind a number: one digest, and its parts' own."""

    parts: dict[str, str]  # 'engine', 'method', 'model'

    @property
    def digest(self) -> str:
        """One digest of all parts."""
        return digest_json(self.parts)


@cache
def train_code(method: str, model: str) -> Code:
    """What trains a row with this method and model."""
    return Code({"engine": digest(ENGINE), **_row_parts(method, model)})


@cache
def measure_code(method: str, model: str) -> Code:
    """What measures a row's weights."""
    return Code({"measuring": digest(MEASURING, NOISE), **_row_parts(method, model)})


@cache
def audit_code(method: str, model: str) -> str:
    """What an audit attacks, and the attacks."""
    return digest_json({**train_code(method, model).parts, "audit": digest(AUDIT)})


def ledger_code() -> str:
    """What accounts for what ran."""
    return digest(LEDGER, TOGETHER, *_opinions())


def account_code() -> str:
    """What accounts for settings."""
    return digest(ACCOUNT, *_opinions())


def _opinions() -> list[Definition]:
    """Those of all accountants, which are imported by name."""
    return [Definition(name, "opinions") for name in opinions.names()]


@cache
def digest(*roots: Definition) -> str:
    """Digest of everything that ``roots`` reach."""
    return _sources().digest(roots)


def _row_parts(method: str, model: str) -> dict[str, str]:
    return {
        "method": digest(Definition(*implementation(method))),
        "model": digest(Definition(f"pipeline.models.{model}", "build")),
    }


@cache
def _sources() -> Sources:
    return Sources()
