"""Which examples go into which split: a declared rule, and the check that no example is in two.

The rule. The seed permutes the official training part. Public examples are taken first: the first ``count``,
in permuted order, whose content occurs nowhere else in the private raw data set. Then train and validation
take their counts from what is left, in the same order. Test is the whole official test part. So no public
example equals a private one, even where an official set repeats itself. Passing an example over looks at
private data, which no epsilon covers, so the manifest says how many there were; MNIST and CIFAR-10 with their
public sets have none.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations

import numpy as np

from pipeline.errors import UserError
from pipeline.params import PARAMS, Data

RULE = (
    "public: the first `count`, in the seed's permutation, whose content occurs nowhere else in the private "
    "raw data set; train, then validation: the rest of the official training part, in the seed's "
    "permutation; test: the whole official test part"
)

# (raw data set, part) -> one key for each example; equal keys mean equal contents
Keys = Mapping[tuple[str, str], Sequence[bytes]]


@dataclass(frozen=True)
class Selection:
    """The examples of a split, by their positions in a part of a raw data set."""

    raw: str
    part: str
    indices: np.ndarray  # int64 (N,)

    @property
    def members(self) -> set[tuple[str, str, int]]:
        """Each example by its raw data set, part and position."""
        return {(self.raw, self.part, index) for index in self.indices.tolist()}

    def contents(self, keys: Keys) -> list[bytes]:
        """Each example's content key."""
        part_keys = keys[self.raw, self.part]
        return [part_keys[index] for index in self.indices]


def content_keys(inputs: np.ndarray) -> list[bytes]:
    """A key for each image or text; two are equal exactly when the contents are."""
    contents = (each.encode() if isinstance(each, str) else each.tobytes() for each in inputs)
    return [blake2b(content, digest_size=16).digest() for content in contents]


def select(name: str, data: Data, keys: Keys) -> tuple[dict[str, Selection], int]:
    """Apply the rule.

    Args:
        name: of the data set, for messages.
        data: the declared sizes and seed.
        keys: of both parts of the private raw data set, and of the public one's.

    Returns:
        The splits, and how many public candidates were passed over.

    Raises:
        UserError: a declared size doesn't fit; the line says what is there.
    """
    public = data.public
    same_set = data.raw == public.raw
    if same_set and public.part == "test":
        raise UserError(f"{PARAMS}: data.{name}.public.part: 'test' is the test split; allowed: train")
    order = _permutation(len(keys[data.raw, "train"]), data.seed)
    candidates = order if same_set else _permutation(len(keys[public.raw, public.part]), data.seed)

    private = Counter([*keys[data.raw, "train"], *keys[data.raw, "test"]])
    occurs = np.array([private[keys[public.raw, public.part][index]] for index in candidates])
    fit = np.flatnonzero(occurs <= (1 if same_set else 0))  # one of one's own occurs once, as itself
    if len(fit) < public.count:
        raise UserError(
            f"{PARAMS}: data.{name}.public.count: {public.count}, but of the {public.part} part of "
            f"{public.raw!r} only {len(fit)} examples can be public"
        )
    chosen = candidates[fit[: public.count]]
    passed_over = int(fit[public.count - 1]) + 1 - public.count if public.count else 0

    rest = order[~np.isin(order, chosen)] if same_set else order
    if data.train + data.validation > len(rest):
        taken = f"; the public split has {public.count} of them" if same_set else ""
        raise UserError(
            f"{PARAMS}: data.{name}: train {data.train} + validation {data.validation} is more than the "
            f"{len(order)} training examples of {data.raw!r}{taken}"
        )
    return {
        "train": Selection(data.raw, "train", rest[: data.train]),
        "validation": Selection(data.raw, "train", rest[data.train : data.train + data.validation]),
        "test": Selection(data.raw, "test", np.arange(len(keys[data.raw, "test"]))),
        "public": Selection(public.raw, public.part, chosen),
    }, passed_over


def check_disjoint(selections: Mapping[str, Selection], keys: Keys) -> None:
    """Make sure that no example is in two splits, and no public content in a private one.

    Raises:
        RuntimeError: the rule is broken, and with it every privacy claim.
    """
    for (name, first), (other, second) in combinations(selections.items(), 2):
        shared = len(first.members & second.members)
        if "public" in (name, other):
            shared += len(set(first.contents(keys)) & set(second.contents(keys)))
        if shared:
            raise RuntimeError(f"splits {name} and {other} share {shared} examples")


def duplicates(selections: Mapping[str, Selection], keys: Keys) -> dict[str, dict[str, int]]:
    """How often contents repeat: examples too many within each split, contents that two splits share."""
    contents = {split: chosen.contents(keys) for split, chosen in selections.items()}
    return {
        "within": {split: len(each) - len(set(each)) for split, each in contents.items()},
        "between": {
            f"{split}, {other}": len(set(contents[split]) & set(contents[other]))
            for split, other in combinations(contents, 2)
        },
    }


def _permutation(count: int, seed: int) -> np.ndarray:
    """A permutation of ``range(count)`` from raw PCG64 output.

    NumPy promises that stream for ever; `Generator.permutation` may change between versions.
    """
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")
