"""What params.yaml holds: its entries, each checked by itself."""

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError, model_validator

from pipeline.fields import Count, Key, Strict
from pipeline.methods.rooms import method_settings
from pipeline.methods.settings import MethodSettings
from pipeline.models.model import Model
from pipeline.params.problems import Inside, problem_lines
from pipeline.privacy.account_settings import AccountSettings

Seeds = Annotated[int, Field(ge=1, le=10_000, strict=True)]  # each is a training of its own
Sentence = Annotated[str, Field(min_length=1)]


class _Level(BaseModel):
    """Of a level, what is no setting."""

    seeds: Seeds = 1


_LEVELS = TypeAdapter(list[_Level])

# The first seeds of planned rows, of rows that repeat what a plan left undecided, and of searches. Rows
# without a plan count from 0, so that no replica of a planned row has been seen before its plan.
PLANNED_SEED = 100
REPEATED_SEED = 200
SEARCHED_SEED = 1000
REPEATED = "-repeated"  # what the key of a plan that repeats another ends on


class Source(Strict):
    """Where raw files come from."""

    kind: Literal["official", "synthetic"] = "official"


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
    """The public split: examples that nobody's privacy depends on. Many methods need none."""

    raw: Key  # the raw data set they come from; the data set's own name splits them off its training part
    part: Literal["train", "test"] = "train"
    count: Annotated[int, Field(ge=0, le=10**12, strict=True)]


# Public word vectors (`pipeline.data.word_vectors`), and how many numbers a word is
WORD_VECTORS = {"glove-6b-50d": 50}


def _known_vectors(name: str) -> str:
    if name not in WORD_VECTORS:
        raise ValueError(f"no word vectors {name!r}; allowed: {', '.join(WORD_VECTORS)}")
    return name


KnownVectors = Annotated[str, AfterValidator(_known_vectors)]


class Text(Strict):
    """How a text data set becomes numbers: integers of a vocabulary, or public word vectors."""

    tokens: Count  # tokens kept of each text; shorter ones are padded
    vocabulary: Count | None = None  # most frequent training tokens kept
    vectors: KnownVectors | None = None

    @model_validator(mode="after")
    def _either(self) -> "Text":
        if (self.vocabulary is None) == (self.vectors is None):
            raise ValueError("vocabulary, vectors: both or neither; allowed: one of the two")
        return self

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Of one text: (T,) token numbers; (1, T, E) the vectors of its words, laid out as an image is."""
        return (self.tokens,) if self.vectors is None else (1, self.tokens, WORD_VECTORS[self.vectors])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """As `Prepared.input_shape`; padding and unknown words are tokens too."""
        return self.stored_shape if self.vocabulary is None else (*self.stored_shape, self.vocabulary + 2)


class Data(Strict):
    """A prepared data set: how raw files are split. The sizes are declared, and checked by `prepare`."""

    raw: Key
    train: Count
    validation: Count
    public: Public
    # of the permutation that splits; no privacy rests on it
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    text: Text | None = None


class Line(Strict):
    """A line of a paper's table or a curve of a figure, at several levels."""

    # of a paper's rows; private rows keep the defaults, and have a purpose
    paper: Key = "mine"
    table: Key = "t1"  # t5, f4, ...
    label: str  # the row's name for people: the paper's name of the line, and what the row does differently
    line: Key | None = None  # the line of that table it belongs to, by its key in the paper's file
    variant: str = ""  # what it does differently from that line; '': nothing, and it may decide
    purpose: str = ""  # of a private model, for people
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
        if self.variant and self.line is None:
            raise ValueError("variant: goes with 'line', and only with it")
        try:
            names = [self.level(resolved) for resolved in self.resolved]
        except ValidationError as problem:
            raise Inside(
                [f"settings.{line}" for line in problem_lines(problem, self.own_settings)]
            ) from problem
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

    def level(self, settings: Any) -> str:
        """Name of the level with these settings, such as 'epsilon=3'."""
        axis = self.axis or settings.axis
        value = getattr(settings, axis)
        return f"{axis}={value:g}" if isinstance(value, float) else f"{axis}={value}"


def _known_method(name: str) -> str:
    if name not in method_settings():
        raise ValueError(f"no method {name!r}; allowed: {', '.join(method_settings())}")
    return name


class Row(Line):
    """A line that is trained: each seed of each level is a replica."""

    data: Key
    model: Model
    method: Annotated[str, AfterValidator(_known_method)]
    # of every level that has no `seeds` of its own, as one may whose results are wide apart
    seeds: Seeds
    # True: noise and samples are seeded too, so that numbers repeat, at the price of the guarantee
    reproducible: bool
    # 'reduced' rows are marked in every report and never compared as if they were the paper's; 'own': the
    # paper gives no budget, so that ours counts
    budget: Literal["full", "own", "reduced"] = "full"
    # 'gpu': not to be tried on a CPU, where it would take days
    needs: Literal["cpu", "gpu"] = "cpu"
    # the search that chose the hyper-parameters on validation data
    search: Key | None = None
    # the plan under which it is trained: 'PAPER-TABLE', or 'PAPER-TABLE-PART' for some of its values, either
    # with '-repeated'; None: exploratory
    plan: Key | None = None
    # the line of its table at whose training budget it is trained, where that alone tells it from its own
    # line; contrasts of the two lines are judged by it
    budget_of: Key | None = None
    # test results that had been seen when it was declared, of a row whose plan they changed; its own results
    # count as informed
    informed: Sentence | None = None
    # the row that this one foretells at a fraction of its cost: the same steps with a smaller batch, and
    # noise smaller by as much (Sander et al. 2022, section 3.4)
    simulates: Key | None = None

    @property
    def own_settings(self) -> type[MethodSettings]:
        """The class of the method's settings."""
        return method_settings()[self.method]

    @model_validator(mode="after")
    def _levels_seeds(self) -> "Row":
        try:
            _LEVELS.validate_python(self.levels)
        except ValidationError as problem:
            raise Inside([f"levels.{line}" for line in problem_lines(problem)]) from problem
        return self

    def configured(self, *changes: dict[str, Any]) -> Any:
        """The settings with ``changes``, the last first; how many seeds a level has is none of them."""
        return super().configured(*({k: v for k, v in change.items() if k != "seeds"} for change in changes))

    @property
    def repeats(self) -> bool:
        """Whether its plan repeats, with new seeds, what an earlier plan left undecided."""
        return self.plan is not None and self.plan.endswith(REPEATED)

    @cached_property
    def trainings(self) -> tuple[tuple[MethodSettings, int], ...]:
        """The settings and the seed of each replica, level by level."""
        first = 0 if self.plan is None else REPEATED_SEED if self.repeats else PLANNED_SEED
        return tuple(
            (settings, seed)
            for level, settings in zip(self.levels, self.resolved, strict=True)
            for seed in range(first, first + level.get("seeds", self.seeds))
        )


class Plan(Strict):
    """What was settled for a paper's table before any row that names it was trained (`Row.plan`)."""

    # of every level of every row alike
    seeds: Annotated[int, Field(ge=5, strict=True)]
    # how far ours may lie from a printed value and still agree with it, in the unit of the printed values:
    # percentage points of accuracy
    margin: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    budget: Sentence  # whose epochs and batches these are
    search: Sentence  # what is searched, and by what rule


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
    # True: inputs become features, what the network makes of them before its linear layers. That part is
    # frozen, so that it is computed once and not at every step. False: inputs stay as they are.
    features: bool = False


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
    seeds: Seeds = 1
    # lists of values a setting may take; keys as in the row's `settings`
    grid: Annotated[dict[str, Annotated[list[Any], Field(min_length=1)]], Field(min_length=1)]
    # settings replaced for the search only (fewer epochs, say)
    settings: dict[str, Any] = Field(default_factory=dict)
    levels: list[dict[str, Any]] | None = None  # None: the row's own
