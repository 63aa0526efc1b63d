"""params.yaml -> frozen, strict models. The only reader of params; everything else receives these objects.

YAML is read as version 1.2, as DVC reads it: ``1e-5`` is a number and ``no`` is a word.
"""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline.errors import UserError
from pipeline.files import digest_json
from pipeline.method_settings import (
    METHOD_SETTINGS,
    AccountSettings,
    AdlmSettings,
    BatchClippingSettings,
    MethodSettings,
)
from pipeline.strict import Count, Key, Positive, Strict

PARAMS = Path("params.yaml")
MODELS = Path(__file__).parent / "models"
# Which normalisations each method can train. `batch_bn`, `public_bn` and `noisy_bn` are answers to where a
# private network's statistics come from; `running_bn` is ordinary batch norm, with running averages. With
# `batch_clipping`, `batch_bn` takes a mini-set's own statistics, and at test what the settings say.
# `response` is local response normalisation, each example's own.
Normalization = Literal[
    "none", "layer", "group", "response", "batch_bn", "public_bn", "noisy_bn", "running_bn"
]
BATCH_NORMS = {"batch_bn", "public_bn", "noisy_bn", "running_bn"}
NORMALIZATIONS: dict[str, tuple[Normalization, ...]] = {
    "adlm": ("none", "layer", "group", "response", "batch_bn"),
    "batch_clipping": ("none", "layer", "group", "batch_bn"),
    "dpsgd": ("none", "layer", "group", "response", "batch_bn", "public_bn", "noisy_bn"),
    "ilm": ("none", "layer", "group", "response", "batch_bn"),
    "noisy_weights": ("none", "layer", "group", "response", "running_bn"),
    "tan": ("none", "layer", "group"),
}
# Models in which normalisation stands before the convolution whose input it is, and so has an order with ReLU
ORDERED = ("wrn16_4",)
T = TypeVar("T")


class _Inside(ValueError):
    """Problems with keys below the one being checked, one line each."""

    def __init__(self, lines: list[str]):
        super().__init__("; ".join(lines))
        self.lines = lines


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

    # its name in the catalogue, where this entry's own is another, such as a second edition of the same set
    of: Key | None = None
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
    # How many of the last trainable layers stay without normalisation. 0: each has one (the papers' 'BN-',
    # 'LN-'); 1: all but the output layer, as ResNet and VGG are usually built; 2: Davody et al.'s '-mod'.
    unnormalized: Annotated[int, Field(ge=0, strict=True)] = 0
    # 'linear': what lies before the first linear layer stays as its public pretraining left it
    trainable: Literal["all", "linear"] = "all"
    # CONV-GN-ReLU, or CONV-ReLU-GN (Sander et al. 2022, section 4.4)
    order: Literal["norm_relu", "relu_norm"] = "norm_relu"

    @model_validator(mode="after")
    def _known(self) -> "Model":
        known = sorted(
            path.stem for path in MODELS.glob("*.py") if path.stem not in ("__init__", "normalization")
        )
        if self.name not in known:
            raise ValueError(f"no model {self.name!r}; allowed: {', '.join(known)}")
        if self.order != "norm_relu" and self.name not in ORDERED:
            raise ValueError(f"order: {self.order!r} is for {', '.join(ORDERED)}; allowed: 'norm_relu'")
        return self

    def differing(self, other: "Model") -> str | None:
        """The first key in which two models compute differently with the same weights; None where none does.

        Kinds of batch norm are one layer; they differ in where its statistics come from.
        """
        for key in ("name", "normalization", "groups", "epsilon", "unnormalized", "order"):
            own, theirs = getattr(self, key), getattr(other, key)
            if own != theirs and not (key == "normalization" and {own, theirs} <= BATCH_NORMS):
                return key
        return None


class Line(Strict):
    """A line of a paper's table or a curve of a figure, at several levels."""

    paper: Key
    table: Key  # t5, f4, ...
    label: str  # as the paper names the line
    settings: dict[str, Any]  # shared by all levels
    levels: Annotated[list[dict[str, Any]], Field(min_length=1)]  # each overrides `settings`
    axis: str | None = None  # the setting that tells levels apart; None: the method's own

    @property
    def own_settings(self) -> type[Strict]:
        """What `settings` with a level must be."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _levels_fit(self) -> "Line":
        known = sorted(self.own_settings.model_fields)
        if self.axis is not None and self.axis not in known:
            raise ValueError(f"axis: {self.axis!r} is no setting; allowed: {', '.join(known)}")
        try:
            names = [self.level(own) for own in self.resolved]
        except ValidationError as problem:
            raise _Inside([f"settings.{line}" for line in _lines(problem)]) from problem
        if len(set(names)) != len(names):
            raise ValueError(f"levels: the same {names[0].partition('=')[0]} twice")
        return self

    @cached_property
    def resolved(self) -> tuple[Any, ...]:
        """The settings at each level."""
        return tuple(self.configured(level) for level in self.levels)

    def configured(self, *changes: dict[str, Any]) -> Any:
        """The settings with ``changes``, the last first."""
        values = dict(self.settings)
        for change in changes:
            values |= change
        return self.own_settings.model_validate(values)

    def level(self, own: Any) -> str:
        """Name of the level with these settings, such as 'epsilon=3'."""
        axis = self.axis or own.axis
        value = getattr(own, axis)
        return f"{axis}={value:g}" if isinstance(value, float) else f"{axis}={value}"


class Row(Line):
    """A line that is trained: its levels times its seeds are its replicas."""

    data: Key
    model: Model
    method: Literal["adlm", "batch_clipping", "dpsgd", "ilm", "noisy_weights", "tan"]
    seeds: Count
    # True: noise and samples are seeded too, so that numbers repeat, at the price of the guarantee
    reproducible: bool
    # 'reduced' rows are marked in every report and never compared as if they were the paper's; 'own': the
    # paper gives no budget, so that ours counts
    budget: Literal["full", "own", "reduced"] = "full"
    # the search that chose the hyper-parameters on validation data
    search: Key | None = None
    # the row that this one foretells at a fraction of its cost: the same steps with a smaller batch, and
    # noise smaller by as much (Sander et al. 2022, section 3.4)
    simulates: Key | None = None

    @property
    def own_settings(self) -> type[MethodSettings]:
        """The method's settings."""
        return METHOD_SETTINGS[self.method]

    @model_validator(mode="after")
    def _normalization_fits(self) -> "Row":
        allowed = NORMALIZATIONS[self.method]
        if self.model.normalization not in allowed:
            raise ValueError(
                f"model.normalization: {self.model.normalization!r} does not work with method "
                f"{self.method!r}; allowed: {', '.join(allowed)}"
            )
        if self.model.normalization == "noisy_bn" and not all(own.private for own in self.resolved):
            raise ValueError(
                "model.normalization: 'noisy_bn' is made of noise; allowed: finite epsilons only"
            )
        return self


class Account(Line):
    """A line that is accounting alone: what its settings would spend, with nothing trained."""

    @property
    def own_settings(self) -> type[AccountSettings]:
        """The settings of an accounting."""
        return AccountSettings


class Start(Strict):
    """A prepared data set that comes with public weights to start from."""

    data: Key
    row: Key  # trained on public data; its first replica gives the weights


class Relevance(Strict):
    """A prepared data set that comes with how relevant its features are to a trained network."""

    data: Key
    row: Key  # the network: its first replica
    # whose relevances are averaged
    of: Literal["train", "public"] = "train"
    examples: Count | None = None  # the first of them; None: all


class Search(Strict):
    """A grid over a row's settings, judged on validation data alone."""

    row: Key
    seeds: Count = 1
    # lists of values a setting may take; keys as in the row's `settings`, or `model.KEY`
    grid: Annotated[dict[str, Annotated[list[Any], Field(min_length=1)]], Field(min_length=1)]
    # settings replaced for the search only (fewer epochs, say)
    settings: dict[str, Any] = Field(default_factory=dict)
    levels: list[dict[str, Any]] | None = None  # None: the row's own


class Settings(Strict):
    """The whole of params.yaml."""

    source: Source = Source()
    raw: dict[Key, Raw]
    data: dict[Key, Data]
    starts: dict[Key, Start] = Field(default_factory=dict)
    relevances: dict[Key, Relevance] = Field(default_factory=dict)
    rows: dict[Key, Row]
    accounts: dict[Key, Account] = Field(default_factory=dict)
    searches: dict[Key, Search] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_exist(self) -> "Settings":
        for name, data in self.data.items():
            for key, raw in (("raw", data.raw), ("public.raw", data.public.raw)):
                _known(f"data.{name}.{key}", raw, self.raw)
        for name, start in self.starts.items():
            if name in self.data:
                raise ValueError(f"starts.{name}: 'data' has an entry of that name too")
            _known(f"starts.{name}.data", start.data, self.data)
            _known(f"starts.{name}.row", start.row, self.rows)
            if self.rows[start.row].data in self.starts:
                raise ValueError(f"starts.{name}.row: {start.row!r} starts from public weights itself")
            _known(f"rows.{start.row}.data", self.rows[start.row].data, self.data)
            self._check_public(f"starts.{name}", start)
        for name, relevance in self.relevances.items():
            self._check_relevance(name, relevance)
        for key, row in self.rows.items():
            _known(f"rows.{key}.data", row.data, {**self.data, **self.starts, **self.relevances})
            if row.method == "adlm" and row.data not in self.relevances:
                raise ValueError(
                    f"rows.{key}.data: method 'adlm' needs data of 'relevances', not {row.data!r}; "
                    f"there are: {', '.join(sorted(self.relevances)) or 'none'}"
                )
            if row.model.trainable != "all" and row.data not in self.starts:
                raise ValueError(
                    f"rows.{key}.model.trainable: {row.model.trainable!r} needs data of 'starts'; "
                    f"there are: {', '.join(sorted(self.starts)) or 'none'}"
                )
            if row.data in self.relevances:
                self._check_relevance_share(key, row)
            if row.data in self.starts:
                before = self.rows[self.starts[row.data].row].model
                if differing := row.model.differing(before):
                    raise ValueError(
                        f"rows.{key}.model.{differing}: {getattr(row.model, differing)!r}, but the weights "
                        f"of {row.data!r} were trained with {getattr(before, differing)!r}"
                    )
            if row.simulates is not None:
                self._check_simulation(key, row, row.simulates)
            for level in row.resolved:
                if isinstance(level, BatchClippingSettings):
                    self._check_public_gradients(key, row.data, level)
                if getattr(level, "augment", "none") != "none" and self.split(row.data).text is not None:
                    raise ValueError(
                        f"rows.{key}.settings.augment: is for images, and {row.data!r} has texts; "
                        "allowed: none"
                    )
                if misfit := level.misfit(row.data, self.split(row.data).train):
                    raise ValueError(f"rows.{key}.settings.{misfit}")
            if row.search is not None:
                _known(f"rows.{key}.search", row.search, self.searches)
                searched = self.rows.get(self.searches[row.search].row)
                if searched and self._bare(searched.data) != self._bare(row.data):
                    raise ValueError(
                        f"rows.{key}.search: {row.search!r} searched on other data, {searched.data!r}"
                    )
        for key, search in self.searches.items():
            _known(f"searches.{key}.row", search.row, self.rows)
        for key in self.accounts:
            if key in self.rows:
                raise ValueError(f"accounts.{key}: 'rows' has an entry of that name too")
        return self

    def _check_public_gradients(self, key: str, name: str, own: BatchClippingSettings) -> None:
        """Gradients of public examples say something of private ones only where labels mean the same."""
        data = self.split(name)
        if self._set(data.public.raw) != self._set(data.raw):
            raise ValueError(
                f"rows.{key}.data: {name!r} has a public split of {data.public.raw!r}; 'batch_clipping' "
                f"needs one of {data.raw!r} itself"
            )
        if (own.public_examples or 0) > data.public.count:
            raise ValueError(
                f"rows.{key}.settings.public_examples: {own.public_examples}; "
                f"allowed: 1 to {data.public.count}"
            )
        if data.text is not None and own.side is not None:
            raise ValueError(
                f"rows.{key}.settings.side: is for images, and {name!r} has texts; allowed: null"
            )

    def _check_relevance(self, name: str, relevance: Relevance) -> None:
        """Relevances are of images, by a network for such images, one average for all who use them."""
        where = f"relevances.{name}"
        if name in self.data or name in self.starts:
            raise ValueError(f"{where}: 'data' or 'starts' has an entry of that name too")
        _known(f"{where}.data", relevance.data, self.data)
        _known(f"{where}.row", relevance.row, self.rows)
        data, before = self.data[relevance.data], self.rows[relevance.row].data
        if before in self.relevances:
            raise ValueError(f"{where}.row: {relevance.row!r} is trained with relevances itself")
        _known(f"rows.{relevance.row}.data", before, {**self.data, **self.starts})
        if data.text is not None or self.split(before).text is not None:
            raise ValueError(f"{where}: is for images; allowed: data and rows without texts")
        if relevance.of == "public":  # taken to cost no epsilon
            self._check_public(where, relevance)
        there = data.train if relevance.of == "train" else data.public.count
        if (relevance.examples or 0) > there:
            raise ValueError(f"{where}.examples: {relevance.examples}; allowed: 1 to {there}")

    def _check_relevance_share(self, key: str, row: Row) -> None:
        """Public relevances need no noise, and so no share of epsilon; others must have one."""
        public = self.relevances[row.data].of == "public"
        for level in row.resolved:
            if isinstance(level, AdlmSettings) and (level.relevance_share == 0) != public:
                raise ValueError(
                    f"rows.{key}.settings.relevance_share: {level.relevance_share}; allowed with the "
                    f"{'public' if public else 'private'} relevances of {row.data!r}: "
                    + ("0" if public else "above 0")
                )

    def _check_simulation(self, key: str, row: Row, whole: str) -> None:
        """A simulation keeps all but batch and noise, which shrink by one factor, and what is only noted."""
        where = f"rows.{key}.simulates"
        _known(where, whole, self.rows)
        other = self.rows[whole]
        if (row.method, other.method) != ("tan", "tan"):
            raise ValueError(f"{where}: {whole!r}; only rows of method 'tan' can be scaled")
        if (row.data, row.model) != (other.data, other.model):
            raise ValueError(f"{where}: {whole!r} has another model or other data")
        for level in row.resolved:
            if not any(level.simulates(of) for of in other.resolved):
                raise ValueError(
                    f"{where}: no level of {whole!r} becomes {row.level(level)!r} when batch and sigma "
                    "shrink by one factor"
                )

    def _bare(self, name: str) -> str:
        """The prepared data set ``name`` without relevances, which leave its examples as they are."""
        return self.relevances[name].data if name in self.relevances else name

    def _set(self, raw: str) -> str:
        """The raw data set that an entry of ``raw`` is an edition of."""
        return self.raw[raw].of or raw

    def _check_public(self, where: str, joined: Start | Relevance) -> None:
        """What was trained with the very data that are private here is not public."""
        seen, private = self.split(self.rows[joined.row].data), self.data[joined.data].raw
        for theirs in (seen.raw, seen.public.raw):
            # two entries of 'raw' may be editions of one set
            if self._set(theirs) == self._set(private):
                raise ValueError(
                    f"{where}.row: {joined.row!r} was trained with {theirs!r}, which is private in "
                    f"{joined.data!r}; allowed: rows on other data"
                )

    def maker(self, name: str) -> Literal["prepare", "start", "relevance"]:
        """The command, and DVC's stage, that makes the prepared data set ``name``."""
        return "start" if name in self.starts else "relevance" if name in self.relevances else "prepare"

    def split(self, name: str) -> Data:
        """How the prepared data set ``name`` is split, whatever else it comes with."""
        joined = self.joined.get(name)
        return self.data[joined.data if joined else name]

    @property
    def joined(self) -> dict[str, Start | Relevance]:
        """Prepared data sets that come with something of a trained row."""
        return {**self.starts, **self.relevances}

    def row_digest(self, key: str) -> str:
        """Digest of everything in params.yaml that decides a row's numbers.

        Labels and comments don't count; the data's own bytes have digests of their own. Settings at their
        default don't count either, so that a setting which is new here doesn't disown the rows that were
        trained before it. A default must therefore never change its meaning (tested).
        """
        row = self.rows[key]
        data = self.split(row.data)
        parts: dict[str, Any] = {
            "data": _essence(data),
            "edition": {name: _essence(self.raw[name]) for name in (data.raw, data.public.raw)},
            "model": _essence(row.model),
            "method": row.method,
            "levels": [_essence(level) for level in row.resolved],
            "seeds": row.seeds,
            "reproducible": row.reproducible,
        }
        if row.axis is not None:
            parts["axis"] = row.axis
        if row.data in self.starts:
            parts["start"] = self.row_digest(self.starts[row.data].row)
        if row.data in self.relevances:
            parts["relevance"] = self.relevance_digest(row.data)
        return digest_json(parts)

    def relevance_digest(self, name: str) -> str:
        """Digest of everything in params.yaml that decides the relevances called ``name``, but their data."""
        own = self.relevances[name]
        return digest_json({"row": self.row_digest(own.row), "of": own.of, "examples": own.examples})

    @property
    def lines(self) -> dict[str, Row | Account]:
        """Everything that leaves a record."""
        return {**self.rows, **self.accounts}

    def account_digest(self, key: str) -> str:
        """Digest of everything in params.yaml that decides an account's numbers."""
        account = self.accounts[key]
        levels = [_essence(level) for level in account.resolved]
        return digest_json({"levels": levels, "axis": account.axis})

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


def _essence(part: Strict) -> dict[str, Any]:
    return part.model_dump(mode="json", exclude_defaults=True)


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
