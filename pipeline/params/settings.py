"""All settings of params.yaml, and values derived from them."""

import itertools
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from dprepro.checking import problem_lines
from dprepro.errors import UserError
from dprepro.fields import Key, Strict
from dprepro.pipeline.files import digest_json
from dprepro.pipeline.methods.settings import Circumstances, MethodSettings
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.params.own import Own, OwnFeatures, OwnFiles, OwnTable
from dprepro.pipeline.params.schema import (
    Account,
    Data,
    Preregistration,
    Raw,
    Relevance,
    Row,
    Search,
    Source,
    Start,
)

PARAMS = Path("params.yaml")
PAPERS = Path("papers")  # printed values and claims of papers
DIGITS_OF = "mnist"  # the data set that the source `digits` replaces
NAMED = 8  # most keys listed in an error
T = TypeVar("T")
Packages = tuple[Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")], ...]


class Settings(Strict):
    """Checked, frozen settings of params.yaml."""

    model_config = ConfigDict(serialize_by_alias=True)

    # packages with methods, models and more, installed or in the folder of params.yaml
    # (`pipeline.extensions`)
    code: Packages = ()
    source: Source = Source()
    catalogued: dict[Key, Raw] = Field(alias="raw")
    own: dict[Key, Own] = Field(default_factory=dict)
    data: dict[Key, Data]
    starts: dict[Key, Start] = Field(default_factory=dict)
    relevances: dict[Key, Relevance] = Field(default_factory=dict)
    plans: dict[Key, Preregistration] = Field(default_factory=dict)  # keys as in `Row.plan`
    rows: dict[Key, Row]
    accounts: dict[Key, Account] = Field(default_factory=dict)
    searches: dict[Key, Search] = Field(default_factory=dict)

    @property
    def raw(self) -> dict[str, Raw | OwnFiles]:
        """All raw data sets: the catalogue's and the user's own."""
        return {**self.catalogued, **self.own}

    def own_of(self, name: str) -> list[str]:
        """Keys of the user's own files with private or public examples of the data set ``name``."""
        data = self.data[name]
        return [raw for raw in (data.raw, data.public.raw) if raw in self.own]

    def row(self, key: str) -> Row:
        """Row ``key``.

        Raises:
            UserError: there is no such row; the message lists similar keys.
        """
        return pick(self.rows, key, "row")

    @property
    def lines(self) -> dict[str, Row | Account]:
        """All rows and accounts."""
        return {**self.rows, **self.accounts}

    def split(self, name: str) -> Data:
        """Declared splits of prepared data ``name``, a key of ``data``, ``starts`` or ``relevances``."""
        joined = self.derived.get(name)
        return self.data[joined.data if joined else name]

    @property
    def derived(self) -> dict[str, Start | Relevance]:
        """Entries of prepared data sets that have a trained row's weights, features or relevances."""
        return {**self.starts, **self.relevances}

    def stage_of(self, name: str) -> Literal["prepare", "start", "relevance"]:
        """Name of the command, and of the DVC stage, that makes the prepared data set ``name``."""
        return "start" if name in self.starts else "relevance" if name in self.relevances else "prepare"

    def without_relevances(self, name: str) -> str:
        """Name of the prepared data set with the same examples as ``name`` but without relevances."""
        return self.relevances[name].data if name in self.relevances else name

    def raw_set(self, raw: str) -> str:
        """Name of the raw data set behind the entry ``raw``; its editions and other forms share this name.

        Entries of one data set may be linked through other entries. The name is that of a catalogued set if
        one is linked, otherwise that of the first entry without ``of``.
        """
        entries = self.raw
        if not isinstance(entries[raw], OwnFiles):
            return entries[raw].of or raw
        linked = {raw: entries.pop(raw)}
        while more := {
            name: entry
            for name, entry in entries.items()
            if any(_is_linked(name, entry, *other) for other in linked.items())
        }:
            linked |= more
            entries = {name: entry for name, entry in entries.items() if name not in more}
        if catalogued := [name for name in linked if name not in self.own]:
            return self.raw_set(catalogued[0])
        return next(name for name, other in self.own.items() if name in linked and not other.of)

    def edition(self, raw: str) -> str:
        """Edition of the raw data set ``raw``: the declared one, or that of files that stand in for it."""
        kind = self.source.kind
        if raw in self.own or kind == "official":
            return self.raw[raw].edition
        return "digits" if kind == "digits" and self.raw_set(raw) == DIGITS_OF else "synthetic"

    def own_digest(self, name: str) -> str:
        """Digest of the declaration of own files, without the paths, which decide no example."""
        paths: Any = {"path": True, "of": True, "network": {"weights"}}
        return digest_json(self.own[name].model_dump(mode="json", exclude_defaults=True, exclude=paths))

    def circumstances(self, row: Row) -> Circumstances:
        """Data and model of ``row``, for checks of its settings."""
        data = self.split(row.data)
        source = self.own.get(data.raw)
        networked = source is not None and source.public_network is not None
        features = networked or isinstance(source, OwnFeatures | OwnTable) or self.has_features(row.data)
        return Circumstances(
            normalization=row.model.normalization,
            data=row.data,
            examples=data.train,
            public=data.public.count,
            raw=data.raw,
            public_raw=data.public.raw,
            one_set=self.raw_set(data.raw) == self.raw_set(data.public.raw),
            no_images="texts" if data.text else "features" if features else None,
            relevances=row.data in self.relevances,
            with_relevances=tuple(sorted(self.relevances)),
            classes=len(source.classes) if source else None,
            group=self.group(row.data),
        )

    def candidates(self, name: str) -> Iterator[tuple[dict[str, Any], MethodSettings]]:
        """Candidates of the search ``name`` at each level: values of the grid, and settings with them.

        Raises:
            ValueError: a candidate can't be trained. The message is 'key: reason'.
        """
        search = self.searches[name]
        row = self.row(search.row)
        for values in itertools.product(*search.grid.values()):
            assignment = dict(zip(search.grid, values, strict=True))
            for level in search.levels or row.levels:
                try:
                    configured = row.configured(level, search.settings, assignment)
                except ValidationError as problem:
                    raise ValueError(
                        f"searches.{name}: {'; '.join(problem_lines(problem, row.own_settings))}"
                    ) from problem
                if misfit := configured.problem(self.circumstances(row)):
                    raise ValueError(f"searches.{name}: {misfit}")
                yield assignment, configured

    def not_chosen(self, name: str, chosen: Mapping[str, dict[str, Any]]) -> str | None:
        """First difference between the values that the search ``name`` chose and the rows that name it.

        None: there is none.
        """
        for key, row in self.rows.items():
            for configured in row.resolved if row.search == name else ():
                level = row.level(configured)
                for setting, value in chosen.get(level, {}).items():
                    if (declared := getattr(configured, setting)) != value:
                        return (
                            f"rows.{key}: {setting} is {declared!r} at {level!r}, where search {name!r} "
                            f"chose {value!r}"
                        )
        return None

    def group(self, data: str) -> int | None:
        """Largest number of a person's examples in prepared ``data``; None: the unit is an example."""
        source = self.own.get(self.split(data).raw)
        return source.unit.at_most if source is not None and source.unit is not None else None

    def has_features(self, data: str) -> bool:
        """Return whether the inputs of prepared data are features: outputs of a network's frozen part."""
        return data in self.starts and self.starts[data].features

    def lacks_range(self, data: str) -> bool:
        """Return whether prepared data are the user's own features, and params.yaml declares no range."""
        source = self.own.get(self.split(data).raw)
        return isinstance(source, OwnFeatures) and source.range is None

    def row_digest(self, key: str) -> str:
        """Digest of everything in params.yaml that decides a row's numbers.

        Labels and comments don't count, and the bytes of the data have other digests. Settings at their
        default don't count, so that a new setting doesn't invalidate rows that were trained before it.
        Therefore a default must never change its meaning (a test checks this).
        """
        row = self.rows[key]
        seeds_of_levels = {str(at): level["seeds"] for at, level in enumerate(row.levels) if "seeds" in level}
        parts = {
            **self._data_parts(row.data),
            "model": _essence(row.model),
            "method": row.method,
            "levels": [_essence(level) for level in row.resolved],
            "seeds": row.seeds,
            "reproducible": row.reproducible,
            "axis": row.axis,
            "own_seeds": seeds_of_levels or None,
            "plan": row.plan,  # the plan decides the seeds
        }
        return digest_json({name: value for name, value in parts.items() if value is not None})

    def data_digest(self, name: str) -> str:
        """Digest of the declaration of the prepared data set ``name`` and of its start or relevances."""
        return digest_json({"source": self.source.kind, **self._data_parts(name)})

    def _data_parts(self, name: str) -> dict[str, Any]:
        data = self.split(name)
        return {
            "data": _essence(data),
            "edition": {raw: _essence(self.raw[raw]) for raw in (data.raw, data.public.raw)},
            "start": self.start_digest(name) if name in self.starts else None,
            "relevance": self.relevance_digest(name) if name in self.relevances else None,
        }

    def plan_digest(self, key: str) -> str | None:
        """Digest of a row's plan and settings; None: the row has no plan."""
        if (plan := self.rows[key].plan) is None:
            return None
        return digest_json({"plan": self.plans[plan].model_dump(mode="json"), "row": self.row_digest(key)})

    def start_digest(self, name: str) -> str:
        """Digest of everything in params.yaml that decides the start ``name``, except its data."""
        start = self.starts[name]
        network = self.row_digest(start.row)
        return digest_json([network, "features"]) if start.features else network

    def relevance_digest(self, name: str) -> str:
        """Digest of everything in params.yaml that decides the relevances ``name``, except their data."""
        relevance = self.relevances[name]
        network = self.row_digest(relevance.row)
        return digest_json({"row": network, "of": "train", "examples": relevance.examples})

    def account_digest(self, key: str) -> str:
        """Digest of everything in params.yaml that decides an account's numbers: its levels and its axis."""
        account = self.accounts[key]
        levels = [_essence(level) for level in account.resolved]
        return digest_json({"levels": levels, "axis": account.axis})


def _is_linked(name: str, entry: Raw | OwnFiles, other_name: str, other: Raw | OwnFiles) -> bool:
    """Return whether two raw data sets are one: by `of`, or by the path or digest of own files."""
    if entry.of == other_name or other.of == name:
        return True
    if not (isinstance(entry, OwnFiles) and isinstance(other, OwnFiles)):
        return False
    return entry.path == other.path or entry.digest == other.digest


def _essence(part: Strict) -> dict[str, Any]:
    """Fields of an entry that differ from their defaults. Paths are left out: digests identify files."""
    if isinstance(part, Model):
        return part.essence
    place: Any = {"path", "of"} if isinstance(part, OwnFiles) else None
    return part.model_dump(mode="json", exclude_defaults=True, exclude=place)


def pick(table: dict[str, T], key: str, kind: str) -> T:
    """Entry ``key`` of ``table``; ``kind`` is its name in messages.

    Raises:
        UserError: there is no such entry; the message lists similar keys, or else the first `NAMED` keys.
    """
    if key not in table:
        if close := get_close_matches(key, table):
            raise UserError(f"{PARAMS}: no {kind} {key!r}; did you mean {' or '.join(close)}?")
        names = sorted(table)
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        raise UserError(f"{PARAMS}: no {kind} {key!r}; there are: {', '.join(names[:NAMED]) or 'none'}{more}")
    return table[key]
