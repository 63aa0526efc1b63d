"""params.yaml -> frozen, strict models. The only reader of params; everything else receives these objects.

YAML is read as version 1.2, as DVC reads it: ``1e-5`` is a number and ``no`` is a word.
"""

import math
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline.errors import UserError
from pipeline.files import digest_json

Key = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Count = Annotated[int, Field(ge=1, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]

PARAMS = Path("params.yaml")
MODELS = Path(__file__).parent / "models"
# Which normalisations each method can train. `batch_bn` and `public_bn` need per-example gradients that
# know about the public images, which only DP-SGD computes.
NORMALIZATIONS = {"dpsgd": ("none", "layer", "group", "batch_bn", "public_bn")}
Normalization = Literal["none", "layer", "group", "batch_bn", "public_bn"]
T = TypeVar("T")


class _Inside(ValueError):
    """Problems with keys below the one being checked, one line each."""

    def __init__(self, lines: list[str]):
        super().__init__("; ".join(lines))
        self.lines = lines


class Strict(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True, ser_json_inf_nan="strings")


class Source(Strict):
    """Where raw files come from."""

    kind: Literal["official", "mirror", "synthetic"] = "official"
    # mirror only: a folder that holds the official files, as archives or unpacked
    folder: Path | None = None

    @model_validator(mode="after")
    def _folder_with_mirror(self) -> "Source":
        if (self.kind == "mirror") != (self.folder is not None):
            raise ValueError("'folder' goes with 'kind: mirror', and only with it")
        return self


class Raw(Strict):
    """A raw data set of the catalogue, taken in a named edition."""

    # 'official' bytes; any other edition of the catalogue must be asked for by its name
    edition: str = "official"
    # synthetic source only: how many examples to make
    train: Count | None = None
    test: Count | None = None


class Public(Strict):
    """The public split: images nobody's privacy depends on."""

    raw: Key  # the raw data set they come from; the data set's own name splits them off its training part
    part: Literal["train", "test"] = "train"
    count: Count


class Text(Strict):
    """How a text data set becomes integers."""

    tokens: Count  # tokens kept of each text; shorter ones are padded
    vocabulary: Count  # most frequent training tokens kept


class Data(Strict):
    """A prepared data set: how raw files are split. The sizes are declared, and checked by `prepare`."""

    raw: Key
    train: Count
    validation: Count
    public: Public
    # of the permutation that splits; no privacy rests on it
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    text: Text | None = None


class Model(Strict):
    """An architecture: `pipeline/models/NAME.py` and the normalisation put into it."""

    name: str
    normalization: Normalization = "none"
    groups: Count = 1  # of group normalisation
    epsilon: Positive = 1e-5  # added to variances
    # False: the last trainable layer stays without normalisation (the papers' '-mod')
    normalize_output: bool = True

    @model_validator(mode="after")
    def _known(self) -> "Model":
        known = sorted(
            path.stem for path in MODELS.glob("*.py") if path.stem not in ("__init__", "normalization")
        )
        if self.name not in known:
            raise ValueError(f"no model {self.name!r}; allowed: {', '.join(known)}")
        return self


def _epsilon(value: Any) -> Any:
    return math.inf if value in ("inf", "Infinity") else value


Epsilon = Annotated[float, BeforeValidator(_epsilon), Field(gt=0)]


class DpsgdSettings(Strict):
    """DP-SGD (Abadi et al. 2016), the base of every private row."""

    # Expected size of a Poisson batch: every example is in with probability batch / train.
    batch: Count
    epochs: Positive
    learning_rate: Positive
    schedule: Literal["constant", "cosine"] = "constant"
    momentum: Share = 0.0
    clip: Positive = 1.0  # C: L2 bound of one example's gradient
    # The target the noise is calibrated to by `accountant`; `.inf` trains without clipping and noise.
    epsilon: Epsilon
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    accountant: Literal["rdp", "pld"] = "rdp"
    # public_bn only: weight `a` of the statistics' gradients in the joint clipped vector
    statistics_weight: Positive = 1.0

    @property
    def private(self) -> bool:
        """Whether gradients are clipped and noised."""
        return math.isfinite(self.epsilon)

    def steps(self, examples: int) -> int:
        """Number of steps T that make `epochs` passes over ``examples`` in expectation."""
        return max(1, round(self.epochs * examples / self.batch))

    def misfit(self, data: str, examples: int) -> str | None:
        """What doesn't fit a training split of so many examples, as 'key: why'; None where all does."""
        if self.batch > examples:
            return (
                f"batch: {self.batch} is larger than the training split of {data!r}; allowed: 1 to {examples}"
            )
        # such a delta would allow publishing somebody's example outright
        if self.private and self.delta >= 1 / examples:
            return f"delta: {self.delta} means nothing; allowed: below 1/{examples}"
        return None


class Row(Strict):
    """A line of a paper's table or a curve of a figure: its levels times its seeds are its replicas."""

    paper: Key
    table: Key  # t5, f4, ...
    label: str  # as the paper names the line
    data: Key
    model: Model
    method: Literal["dpsgd"]
    seeds: Count
    # True: noise and samples are seeded too, so that numbers repeat, at the price of the guarantee
    reproducible: bool
    # 'reduced' rows are marked in every report and never compared as if they were the paper's
    budget: Literal["full", "reduced"] = "full"
    # the search that chose the hyper-parameters on validation data
    search: Key | None = None
    settings: dict[str, Any]  # of the method, shared by all levels
    levels: Annotated[list[dict[str, Any]], Field(min_length=1)]  # each overrides `settings`

    @model_validator(mode="after")
    def _levels_fit(self) -> "Row":
        allowed = NORMALIZATIONS[self.method]
        if self.model.normalization not in allowed:
            raise ValueError(
                f"model.normalization: {self.model.normalization!r} does not work with method "
                f"{self.method!r}; allowed: {', '.join(allowed)}"
            )
        try:
            names = [f"{level.epsilon:g}" for level in self.resolved]
        except ValidationError as problem:
            raise _Inside([f"settings.{line}" for line in _lines(problem)]) from problem
        if len(set(names)) != len(names):
            raise ValueError("levels: the same epsilon twice")
        return self

    @cached_property
    def resolved(self) -> tuple[DpsgdSettings, ...]:
        """The method's settings at each level."""
        return tuple(DpsgdSettings.model_validate({**self.settings, **level}) for level in self.levels)


class Search(Strict):
    """A grid over a row's settings, judged on validation data alone."""

    row: Key
    seeds: Count = 1
    # lists of values a setting may take; keys as in the row's `settings`, or `model.KEY`
    grid: Annotated[dict[str, Annotated[list[Any], Field(min_length=1)]], Field(min_length=1)]
    # settings replaced for the search only (fewer epochs, say)
    settings: dict[str, Any] = {}
    levels: list[dict[str, Any]] | None = None  # None: the row's own


class Settings(Strict):
    """The whole of params.yaml."""

    source: Source = Source()
    raw: dict[Key, Raw]
    data: dict[Key, Data]
    rows: dict[Key, Row]
    searches: dict[Key, Search] = {}

    @model_validator(mode="after")
    def _names_exist(self) -> "Settings":
        for name, data in self.data.items():
            for key, raw in (("raw", data.raw), ("public.raw", data.public.raw)):
                _known(f"data.{name}.{key}", raw, self.raw)
        for key, row in self.rows.items():
            _known(f"rows.{key}.data", row.data, self.data)
            for level in row.resolved:
                if misfit := level.misfit(row.data, self.data[row.data].train):
                    raise ValueError(f"rows.{key}.settings.{misfit}")
            if row.search is not None:
                _known(f"rows.{key}.search", row.search, self.searches)
                searched = self.rows.get(self.searches[row.search].row)
                if searched and searched.data != row.data:
                    raise ValueError(
                        f"rows.{key}.search: {row.search!r} searched on other data, {searched.data!r}"
                    )
        for key, search in self.searches.items():
            _known(f"searches.{key}.row", search.row, self.rows)
        return self

    def row_digest(self, key: str) -> str:
        """Digest of everything in params.yaml that decides a row's numbers.

        Labels and comments don't count; the data's own bytes have digests of their own.
        """
        row = self.rows[key]
        return digest_json(
            {
                "data": self.data[row.data].model_dump(mode="json"),
                "edition": {
                    name: self.raw[name].model_dump(mode="json")
                    for name in (self.data[row.data].raw, self.data[row.data].public.raw)
                },
                "model": row.model.model_dump(mode="json"),
                "method": row.method,
                "levels": [level.model_dump(mode="json") for level in row.resolved],
                "seeds": row.seeds,
                "reproducible": row.reproducible,
            }
        )

    def row(self, key: str) -> Row:
        """The row called ``key``.

        Raises:
            UserError: there is none; the message lists those there are.
        """
        return pick(self.rows, key, "row")


def pick(table: dict[str, T], key: str, kind: str) -> T:
    """``table[key]``, or one line that says what there is instead."""
    if key not in table:
        raise UserError(f"{PARAMS}: no {kind} {key!r}; there are: {', '.join(sorted(table)) or 'none'}")
    return table[key]


def _known(where: str, name: str, table: dict[str, Any]) -> None:
    if name not in table:
        raise ValueError(f"{where}: no such entry {name!r}; allowed: {', '.join(sorted(table))}")


def load(path: Path = PARAMS) -> Settings:
    """Read and check the whole file.

    Raises:
        UserError: with one line per problem: file, key, value and what is allowed.
    """
    try:
        raw = YAML(typ="safe", pure=True).load(path.read_text())
    except OSError as problem:
        raise UserError(
            f"{path}: {problem.strerror}; run this in the folder that holds params.yaml"
        ) from problem
    except YAMLError as problem:
        raise UserError(f"{path}: not YAML: {' '.join(str(problem).split())}") from problem
    return parse(raw, path)


def parse(raw: Any, path: Path = PARAMS) -> Settings:
    """Check what a params file holds."""
    try:
        return Settings.model_validate(raw)
    except ValidationError as problem:
        raise UserError("\n".join(f"{path}: {line}" for line in _lines(problem))) from problem


def _lines(problem: ValidationError) -> list[str]:
    """Every error as 'key: value is wrong because'."""
    lines = []
    for error in problem.errors():
        where = ".".join(str(part) for part in error["loc"] if part != "[key]")
        inner = error.get("ctx", {}).get("error")
        if isinstance(inner, _Inside):
            lines += [f"{where}.{line}" for line in inner.lines]
        elif error["type"] == "extra_forbidden":
            lines.append(f"{where}: unknown key")
        elif error["type"] == "missing":
            lines.append(f"{where}: missing")
        elif error["type"] == "value_error":
            lines.append(f"{where}: {inner}" if where else str(inner))
        else:
            lines.append(f"{where}: {error['input']!r} is not allowed: {error['msg']}")
    return lines
