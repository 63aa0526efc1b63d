"""Declarations of the user's own files in params.yaml: path, digest and content.

A declaration has everything that a model must know of the data, as an entry of the catalogue has. The files
are compared with it. `dprepro new data` writes the declaration from the files.
"""

from collections import Counter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    ValidationError,
    model_validator,
)

from dprepro.checking import CATEGORICAL, NUMERIC, NestedProblems, problem_lines
from dprepro.errors import shown
from dprepro.fields import Count, Finite, Key, Strict, omitted
from dprepro.pipeline.files import OWN_CLASSES, OWN_COLUMNS, OWN_GROUP
from dprepro.pipeline.models.model import Below, Digest, PublicWeights, Side

OWN = "own"  # name of the edition of own files


def _differ(names: list[str]) -> list[str]:
    counts = Counter(names)
    if twice := next((name for name in names if counts[name] > 1), None):
        raise ValueError(f"{shown(twice)} stands there twice")
    return names


def _low_first(ends: tuple[float, float]) -> tuple[float, float]:
    if not ends[0] < ends[1]:
        raise ValueError(f"{shown(list(ends))}; allowed: the lower end first")
    return ends


Range = Annotated[tuple[Finite, Finite], AfterValidator(_low_first)]
Class = Annotated[str, Field(min_length=1, max_length=200)]
Classes = Annotated[list[Class], Field(min_length=2, max_length=OWN_CLASSES), AfterValidator(_differ)]


class Unit(Strict):
    """Unit of privacy: a person, of whom the first ``at_most`` lines of a file are kept."""

    column: Annotated[str, Field(min_length=1)]  # has the same value in all lines of a person
    at_most: Annotated[int, Field(ge=1, le=OWN_GROUP, strict=True)]  # not computed from the lines


class OwnFiles(Strict):
    """Fields that all declarations of own files have."""

    edition: ClassVar[str] = OWN

    kind: str  # first field, so `dprepro new data` writes it first
    # entry of 'own' or 'raw' with the same examples, or people, in another form; None: there is none. Entries
    # with the same path or digest count as one data set even without `of`
    of: Key | None = None
    # a file, or a folder with the parts `train` and `test`
    path: Below
    digest: Digest
    classes: Classes  # in the order of their labels
    # number of examples for the test part; None: the files have a test part
    test: Count | None = None
    seed: Annotated[int, Field(ge=0, strict=True)] = 0  # of the permutation that chooses them
    licence: str = "not stated"
    unit: Unit | None = omitted(None)  # of tables and texts; None: the unit of privacy is an example

    @model_validator(mode="after")
    def _people_are_no_features(self) -> "OwnFiles":
        if self.unit is None:
            return self
        if not isinstance(self, OwnTable | OwnTexts):
            raise ValueError("unit: allowed for tables and texts")
        used = {self.text, self.label} if isinstance(self, OwnTexts) else {*self.columns, self.label}
        if self.unit.column in used:
            raise ValueError(
                f"unit.column: {shown(self.unit.column)} is a feature or the label; allowed: another column"
            )
        return self

    @property
    def example_shape(self) -> tuple[int, ...] | None:
        """Shape (C, H, W) of one image, or (D,) or (C, H, W) of an example's features; None for texts."""
        return None

    @property
    def public_network(self) -> "PublicNetwork | None":
        """Public network whose features replace the images; None: there is none."""
        return getattr(self, "network", None)

    @property
    def number_range(self) -> tuple[float, float] | None:
        """Declared range of a numeric target; None: labels are classes."""
        return getattr(self, "target", None)

    @property
    def encoding(self) -> dict[str, Any] | None:
        """Settings of the function that turns examples into features; None: examples stay unchanged."""
        return None


class PublicNetwork(PublicWeights):
    """Public network whose features replace the images."""

    features: Count  # number of features of an image


class OwnPictures(OwnFiles):
    """The user's own images, as arrays or as files."""

    shape: tuple[Literal[1, 3], Side, Side]  # (C, H, W)
    network: PublicNetwork | None = None  # None: inputs are the images themselves

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Shape (C, H, W) of one image, or (D,) of its features."""
        return self.shape if self.network is None else (self.network.features,)

    @property
    def encoding(self) -> dict[str, Any] | None:
        """Settings of the public network, without the path of its weights; None: there is no network."""
        return None if self.network is None else self.network.model_dump(mode="json", exclude={"weights"})


class OwnArrays(OwnFiles):
    """NumPy file with arrays of inputs and of labels; labels are (N,) integers from 0."""

    inputs: str = "inputs"  # names of the arrays
    labels: str = "labels"
    test_inputs: str | None = None
    test_labels: str | None = None

    @model_validator(mode="after")
    def _check_test_pair(self) -> "OwnArrays":
        if (self.test_inputs is None) != (self.test_labels is None):
            raise ValueError("test_inputs: goes with 'test_labels', and only with it")
        if self.test_inputs is not None and self.test is not None:
            raise ValueError("test: takes examples for a test part, which 'test_inputs' is; allowed: null")
        return self


class OwnNpz(OwnPictures, OwnArrays):
    """NumPy file with images of bytes: (N, H, W), (N, H, W, C) or (N, C, H, W)."""

    kind: Literal["npz"]


class OwnFeatures(OwnArrays):
    """NumPy file with features of examples as floats: (N, D) or (N, C, H, W)."""

    kind: Literal["features"]
    shape: tuple[Count] | tuple[Count, Count, Count]  # (D,) or (C, H, W) of one example
    # bounds of all values, known without a look at these data. None: unknown; the ledger then lists the
    # features' scale as not covered by epsilon
    range: Range | None = None
    clip: bool = False  # True: values beyond the range are moved to its end; False: they are refused

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Shape (D,) or (C, H, W) of one example."""
        return self.shape

    @model_validator(mode="after")
    def _clipped_to_a_range(self) -> "OwnFeatures":
        if self.clip and self.range is None:
            raise ValueError("clip: goes with 'range', and only with it")
        return self


class OwnImages(OwnPictures):
    """Folder with a folder of images for each class, as in torchvision's ImageFolder."""

    kind: Literal["images"]
    # True: images are cropped to the centre and scaled to the shape; False: all must have the shape
    resize: bool = False


class OwnTexts(OwnFiles):
    """CSV file with a header line; each further line has a text and its class."""

    kind: Literal["texts"]
    text: str = "text"  # names of the columns
    label: str = "label"


class Numeric(Strict):
    """Numeric column, scaled from its declared range to [-1, 1]; values beyond the range are clipped."""

    range: Range
    # replaces missing values; None: `indicator` must be true, or no value may be missing
    fill: Finite | None = None
    indicator: bool = False  # adds a feature that is 1 if the value is missing

    @property
    def width(self) -> int:
        """Number of features."""
        return 1 + self.indicator


class Categorical(Strict):
    """Column with declared values. Each value becomes one feature, which is 0 or 1."""

    values: Annotated[list[Class], Field(min_length=1, max_length=OWN_CLASSES), AfterValidator(_differ)]
    fill: str | None = None  # replaces missing values
    indicator: bool = False  # adds a category for missing values
    other: bool = False  # True: adds a category for all other values; False: other values are refused

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.values) + self.indicator + self.other

    @model_validator(mode="after")
    def _filled_by_a_value(self) -> "Categorical":
        if self.fill is not None and self.fill not in self.values:
            raise ValueError(f"fill: {shown(self.fill)}; allowed: one of `values`")
        if self.fill is not None and self.indicator:
            raise ValueError("fill: not allowed with `indicator`, which is a category for missing values")
        return self


def _kind_of_column(column: Any) -> str:
    fields = column if isinstance(column, dict) else getattr(column, "__dict__", {})
    return CATEGORICAL if "values" in fields else NUMERIC


Column = Annotated[
    Annotated[Numeric, Tag(NUMERIC)] | Annotated[Categorical, Tag(CATEGORICAL)],
    Discriminator(_kind_of_column),
]
Columns = Annotated[
    dict[Annotated[str, Field(min_length=1)], Column], Field(min_length=1, max_length=OWN_COLUMNS)
]


class OwnTable(OwnFiles):
    """Table with one example per line. Its columns become features by a declared encoding.

    Classes, ranges and values are declared; the encoding uses no statistic of the private examples.
    """

    kind: Literal["table"]
    classes: Annotated[list[Class], Field(min_length=1, max_length=OWN_CLASSES), AfterValidator(_differ)]
    file: Literal["csv", "parquet"] = "csv"
    label: str  # name of the column with the class or the target
    # range of a numeric target, to which values are clipped; None: the label is a class. With a target,
    # `classes` has one entry, the name of the target's column
    target: Range | None = omitted(None)
    columns: Columns  # columns that become features, in their order; others are left out

    @property
    def encoding(self) -> dict[str, Any]:
        """Declared columns, classes, label and target."""
        return self.model_dump(mode="json", include={"label", "classes", "columns", "target"})

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Shape (D,) of one example's features."""
        return (sum(column.width for column in self.columns.values()),)

    @model_validator(mode="after")
    def _label_is_no_feature(self) -> "OwnTable":
        if self.label in self.columns:
            raise ValueError(f"columns: {shown(self.label)} is the label; allowed: other columns")
        if self.target is not None and self.classes != [self.label]:
            raise ValueError(f"classes: {shown(self.classes)}; allowed with 'target': the label alone")
        if self.target is None and len(self.classes) < 2:
            raise ValueError("classes: one; allowed: two or more, or a 'target'")
        return self


KINDS: dict[str, type[OwnFiles]] = {
    "npz": OwnNpz,
    "features": OwnFeatures,
    "images": OwnImages,
    "texts": OwnTexts,
    "table": OwnTable,
}


def _declared(value: Any) -> OwnFiles:
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind not in KINDS:
        raise NestedProblems([f"kind: {shown(kind)}; allowed: {', '.join(KINDS)}"])
    try:
        return KINDS[kind].model_validate(value)
    except ValidationError as problem:
        raise NestedProblems(
            [line.removeprefix(": ") for line in problem_lines(problem, KINDS[kind])]
        ) from problem


Own = Annotated[
    OwnFiles, PlainValidator(_declared), PlainSerializer(lambda files: files.model_dump(mode="json"))
]
