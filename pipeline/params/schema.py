"""Entries of params.yaml, each checked by itself."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError, model_validator

from dprepro.accountants.records import AccountSettings
from dprepro.checking import NestedProblems, problem_lines
from dprepro.errors import shown
from dprepro.fields import Count, Key, Strict
from dprepro.pipeline.methods.settings import MethodSettings, method_settings
from dprepro.pipeline.models.model import Model

Seeds = Annotated[int, Field(ge=1, le=10_000, strict=True)]  # number of seeds, each a training
Sentence = Annotated[str, Field(min_length=1)]
# best settings by search and level
Choices = Mapping[str, Mapping[str, dict[str, Any]]]


class _Level(BaseModel):
    """Fields of a level that are not settings of the method."""

    seeds: Seeds = 1


_LEVELS = TypeAdapter(list[_Level])

# First seed of planned rows, of rows that repeat an undecided plan, and of searches. Rows without a plan
# begin at 0, so that results of planned seeds are unknown before the plan.
PLANNED_SEED = 100
REPEATED_SEED = 200
SEARCHED_SEED = 1000
REPEATED = "-repeated"  # in the key of a plan that repeats another: 'PLAN-repeated' or 'PLAN-repeated-PART'


class Source(Strict):
    """Source of raw files."""

    # 'digits': scikit-learn's digits in place of MNIST; other data sets are synthetic
    kind: Literal["official", "digits", "synthetic"] = "official"


class Raw(Strict):
    """Raw data set of the catalogue, in a named edition."""

    # name in the catalogue, if this entry has another name, for example as a second edition of the same set
    of: Key | None = None
    # 'official' bytes, or the name of another edition of the catalogue
    edition: str = "official"
    # synthetic examples only: their number
    train: Count | None = None
    test: Count | None = None


class Public(Strict):
    """Public split: examples that need no privacy. Many methods use no public examples."""

    raw: Key  # their raw data set; if it is also the private one, they come from its training part
    part: Literal["train", "test"] = "train"
    count: Annotated[int, Field(ge=0, le=10**12, strict=True)]


# Public word vectors (`pipeline.data.word_vectors`) and their dimension
KnownVectors = Literal["glove-6b-50d"]
WORD_VECTORS: dict[KnownVectors, int] = {"glove-6b-50d": 50}


class Text(Strict):
    """Encoding of texts: token numbers of a vocabulary, or public word vectors."""

    tokens: Count  # length of each text; longer ones are cut, shorter ones padded
    vocabulary: Count | None = None  # number of most frequent training tokens
    vectors: KnownVectors | None = None

    @model_validator(mode="after")
    def _either(self) -> "Text":
        if (self.vocabulary is None) == (self.vectors is None):
            raise ValueError("vocabulary, vectors: both or neither; allowed: one of the two")
        return self

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of one text: (T,) token numbers, or (1, T, E) word vectors, laid out like an image."""
        return (self.tokens,) if self.vectors is None else (1, self.tokens, WORD_VECTORS[self.vectors])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """`Prepared.input_shape`; the number of tokens counts padding and the unknown word, too."""
        return self.stored_shape if self.vocabulary is None else (*self.stored_shape, self.vocabulary + 2)


class Data(Strict):
    """Prepared data set: split of raw files. `prepare` compares the declared sizes with the files."""

    raw: Key
    train: Count
    validation: Annotated[int, Field(ge=0, strict=True)]  # 0: for rows that choose nothing
    public: Public
    # of the permutation that decides the splits; no privacy depends on it
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    text: Text | None = None


class Line(Strict):
    """Line of a paper's table, or curve of a figure, at several levels."""

    # rows without a paper keep the defaults of `paper` and `table`, and have a `purpose`
    paper: Key = "mine"
    table: Key = "t1"  # t5, f4, ...
    label: str  # name in reports: the paper's name of the line, and the row's differences from it
    line: Key | None = None  # the line of that table, by its key in the paper's file
    variant: str = ""  # difference from that line; '': none, so the row may decide the line's printed values
    purpose: str = ""  # purpose of a private model, in words
    settings: dict[str, Any]  # shared by all levels
    levels: Annotated[list[dict[str, Any]], Field(min_length=1)]  # each overrides `settings`
    axis: str | None = None  # the setting that names levels; None: the method's `axis`

    @property
    def own_settings(self) -> type[Strict]:
        """Class of the settings at a level."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _levels_fit(self) -> "Line":
        known = sorted(self.own_settings.model_fields)
        if self.axis is not None and self.axis not in known:
            raise ValueError(f"axis: {self.axis!r} is no setting; allowed: {', '.join(known)}")
        if self.variant and self.line is None:
            raise ValueError("variant: goes with 'line', and only with it")
        try:
            names = [self.level(resolved) for resolved in self.resolved]
        except ValidationError as problem:
            raise NestedProblems(
                [f"settings.{line}" for line in problem_lines(problem, self.own_settings)]
            ) from problem
        if len(set(names)) != len(names):
            raise ValueError(f"levels: the same {names[0].partition('=')[0]} twice")
        return self

    @cached_property
    def resolved(self) -> tuple[Any, ...]:
        """Settings at each level."""
        return tuple(self.configured(level) for level in self.levels)

    def configured(self, *changes: dict[str, Any]) -> Any:
        """The line's settings with ``changes``; later changes override earlier ones."""
        values = dict(self.settings)
        for change in changes:
            values |= change
        return self.own_settings.model_validate(values)

    def level(self, settings: Any) -> str:
        """Name of the level with these settings, such as 'epsilon=3'."""
        axis = self.axis or settings.axis
        value = getattr(settings, axis)
        return f"{axis}={value:g}" if isinstance(value, float) else f"{axis}={value}"


def _known_method(name: str) -> str:
    if name not in method_settings():
        raise ValueError(f"no method {shown(name)}; allowed: {', '.join(method_settings())}")
    return name


KnownMethod = Annotated[str, AfterValidator(_known_method)]


class Row(Line):
    """Line that is trained: once for each seed of each level."""

    data: Key
    model: Model
    method: KnownMethod
    # number of seeds of each level; a level may have its own `seeds`, for example if its results vary more
    seeds: Seeds
    # True: noise and samples are seeded too, so that numbers repeat and no guarantee holds
    reproducible: bool
    # training budget. 'reduced' rows are marked in every report and never compared with printed values;
    # 'own': the paper gives no budget
    budget: Literal["full", "own", "reduced"] = "full"
    # 'gpu': not trained on a CPU, because it would take days
    needs: Literal["cpu", "gpu"] = "cpu"
    # the search that chose the hyper-parameters on validation data
    search: Key | None = None
    # the row's plan: 'PAPER-TABLE', or 'PAPER-TABLE-PART' for some of its values, each also with '-repeated'
    # or '-repeated-PART' at its end; None: exploratory
    plan: Key | None = None
    # another line of the table. This row differs from its own line only by the other line's training budget,
    # and decides contrasts of the two lines
    trained_as: Key | None = None
    # test results that led to this row; its own results count as informed
    informed: Sentence | None = None
    # the row that this one simulates at a fraction of its cost: the same steps, with batch and noise divided
    # by one factor (Sander et al. 2022, section 3.4)
    simulates: Key | None = None

    @property
    def own_settings(self) -> type[MethodSettings]:
        """Class of the method's settings."""
        return method_settings()[self.method]

    @model_validator(mode="after")
    def _levels_seeds(self) -> "Row":
        try:
            _LEVELS.validate_python(self.levels)
        except ValidationError as problem:
            raise NestedProblems([f"levels.{line}" for line in problem_lines(problem)]) from problem
        return self

    def configured(self, *changes: dict[str, Any]) -> Any:
        """Settings as from `Line.configured`. The `seeds` of a level are left out: they are no setting."""
        return super().configured(*({k: v for k, v in change.items() if k != "seeds"} for change in changes))

    def with_chosen(self, choices: Choices) -> list[dict[str, Any]]:
        """Levels of the row, with the values that its search chose."""
        chosen, levels = choices.get(self.search or "", {}), zip(self.levels, self.resolved, strict=True)
        return [level | chosen.get(self.level(settings), {}) for level, settings in levels]

    @property
    def repeats(self) -> bool:
        """Return whether the row's plan repeats undecided values of an earlier plan with new seeds."""
        return self.plan is not None and REPEATED in self.plan

    @cached_property
    def trainings(self) -> tuple[tuple[MethodSettings, int], ...]:
        """Settings and seed of each training, level by level."""
        first = 0 if self.plan is None else REPEATED_SEED if self.repeats else PLANNED_SEED
        return tuple(
            (settings, seed)
            for level, settings in zip(self.levels, self.resolved, strict=True)
            for seed in range(first, first + level.get("seeds", self.seeds))
        )


class Preregistration(Strict):
    """Plan of a paper's table, fixed before the training of every row that names the plan (`Row.plan`)."""

    # number of seeds at every level of every row; a verdict needs three
    seeds: Annotated[int, Field(ge=3, strict=True)]
    # largest distance from a printed value that counts as agreement, in percentage points of accuracy
    margin: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    budget: Sentence  # where epochs and batch sizes come from
    search: Sentence  # searched settings and the rule of choice


class Account(Line):
    """Entry under `accounts` in params.yaml: epsilon of its settings, without training."""

    @property
    def own_settings(self) -> type[AccountSettings]:
        """Class of the settings of an account."""
        return AccountSettings


class Start(Strict):
    """Prepared data set with public initial weights."""

    data: Key
    row: Key  # trained on public data; its first training gives the weights
    # True: inputs are replaced by the network's features before its linear layers. This part is frozen, so it
    # is computed once and not at every step. False: inputs stay unchanged.
    features: bool = False


class Relevance(Strict):
    """Prepared data set with the relevances of its features to a trained network."""

    data: Key
    row: Key  # the network: its first training
    examples: Count | None = None  # number of training examples, the first of the split; None: all


class Search(Strict):
    """Search over a grid of a row's settings, which judges candidates on validation data only."""

    row: Key
    seeds: Seeds = 1
    # lists of values, by setting; keys as in the row's `settings`
    grid: Annotated[dict[str, Annotated[list[Any], Field(min_length=1)]], Field(min_length=1)]
    # settings for the search only, such as fewer epochs
    settings: dict[str, Any] = Field(default_factory=dict)
    levels: list[dict[str, Any]] | None = None  # None: the row's levels
