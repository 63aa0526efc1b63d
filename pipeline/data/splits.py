"""Rule of the splits, and the check that no example is in two of them.

The seed permutes the official training part, and the public part if it is of another set. Public examples
are taken first: the first ``count`` candidates in permuted order. A candidate is passed over if another
example of the private raw data set has the same content. So no public example equals a private one, even if
an official set has duplicates. Passing over uses private data, and no epsilon covers this. So the manifest
has the number of candidates that were passed over: 0 for MNIST with public KMNIST and for CIFAR-10 with
public CIFAR-100. Then train and validation take their counts from the remaining training examples, in
permuted order. Test is the whole official test part.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations

import numpy as np

from dprepro.errors import UserError
from dprepro.pipeline.params import PARAMS, Data

RULE = (
    "public: the first `count`, in the seed's permutation, whose content occurs nowhere else in the private "
    "raw data set; train, then validation: the rest of the official training part, in the seed's "
    "permutation; test: the whole official test part"
)

# one key for each example, by raw data set and part; equal keys mean equal contents
Keys = Mapping[tuple[str, str], Sequence[bytes]]
# (N,) person of each example, by raw data set and part; None: an example is the unit of privacy
People = Mapping[tuple[str, str], np.ndarray | None]
NO_PEOPLE: People = {}


@dataclass(frozen=True)
class Selection:
    """Examples of a split, by their positions in a part of a raw data set."""

    raw: str
    part: str
    indices: np.ndarray  # int64 (N,)

    @property
    def members(self) -> set[tuple[str, str, int]]:
        """Raw data set, part and position of each example."""
        return {(self.raw, self.part, index) for index in self.indices.tolist()}

    def people(self, people: People) -> set[tuple[str, str]]:
        """Raw data set and name of each person; empty if an example is the unit."""
        there = people.get((self.raw, self.part))
        return set() if there is None else {(self.raw, name) for name in there[self.indices]}

    def contents(self, keys: Keys) -> list[bytes]:
        """Content key of each example."""
        part_keys = keys[self.raw, self.part]
        return [part_keys[index] for index in self.indices]


def content_keys(inputs: np.ndarray) -> list[bytes]:
    """Key of each image or text; two keys are equal exactly if the contents are equal."""
    contents = (each.encode() if isinstance(each, str) else each.tobytes() for each in inputs)
    return [blake2b(content, digest_size=16).digest() for content in contents]


def select(name: str, data: Data, keys: Keys, people: People = NO_PEOPLE) -> tuple[dict[str, Selection], int]:
    """Choose the examples of each split by the rule of this module.

    Args:
        name: name of the data set, for messages.
        data: declared sizes and seed.
        keys: content keys of both parts of the private raw data set, and of the public part.
        people: people of these parts.

    Returns:
        The splits, and the number of public candidates that were passed over.

    Raises:
        UserError: a declared size is too large (the message has the available number), or the public part
            is the test split.
    """
    public = data.public
    same_set = data.raw == public.raw
    if same_set and public.part == "test":
        raise UserError(f"{PARAMS}: data.{name}.public.part: 'test' is the test split; allowed: train")
    of_training = people.get((data.raw, "train"))
    order = permutation_of(len(keys[data.raw, "train"]), data.seed, of_training)
    candidates = order if same_set else permutation(len(keys[public.raw, public.part]), data.seed)

    private = Counter([*keys[data.raw, "train"], *keys[data.raw, "test"]])
    occurs = np.array([private[keys[public.raw, public.part][index]] for index in candidates])
    fit = np.flatnonzero(occurs <= (1 if same_set else 0))  # in the same set, each counts itself once
    if len(fit) < public.count:
        raise UserError(
            f"{PARAMS}: data.{name}.public.count: {public.count}, but of the {public.part} part of "
            f"{public.raw!r} only {len(fit)} examples can be public"
        )
    chosen = candidates[fit[: public.count]]
    passed_over = int(fit[public.count - 1]) + 1 - public.count if public.count else 0

    rest = order[~np.isin(order, chosen)] if same_set else order
    validation = rest[data.train :]
    if of_training is not None:
        validation = without_people_of(rest[: data.train], validation, of_training)
    if data.train + data.validation > min(data.train, len(rest)) + len(validation):
        taken = f"; the public split has {public.count} of them" if same_set else ""
        raise UserError(
            f"{PARAMS}: data.{name}: train {data.train} + validation {data.validation} is more than the "
            f"{len(order)} training examples of {data.raw!r}{taken}"
            + ("; a person's examples are in one split" if of_training is not None else "")
        )
    return {
        "train": Selection(data.raw, "train", rest[: data.train]),
        "validation": Selection(data.raw, "train", validation[: data.validation]),
        "test": Selection(data.raw, "test", np.arange(len(keys[data.raw, "test"]))),
        "public": Selection(public.raw, public.part, chosen),
    }, passed_over


def check_disjoint(selections: Mapping[str, Selection], keys: Keys, people: People = NO_PEOPLE) -> None:
    """Make sure that no two splits share an example or a person, and no private example equals a public one.

    Raises:
        RuntimeError: the rule is broken, and with it every privacy claim.
    """
    for (name, first), (other, second) in combinations(selections.items(), 2):
        shared = len(first.members & second.members)
        shared += len(first.people(people) & second.people(people))
        if "public" in (name, other):
            shared += len(set(first.contents(keys)) & set(second.contents(keys)))
        if shared:
            raise RuntimeError(f"splits {name} and {other} share {shared} examples")


def duplicates(selections: Mapping[str, Selection], keys: Keys) -> dict[str, dict[str, int]]:
    """Numbers of repeated contents: surplus copies within each split, and contents that two splits share."""
    contents = {split: chosen.contents(keys) for split, chosen in selections.items()}
    return {
        "within": {split: len(each) - len(set(each)) for split, each in contents.items()},
        "between": {
            f"{split}, {other}": len(set(contents[split]) & set(contents[other]))
            for split, other in combinations(contents, 2)
        },
    }


def permutation(count: int, seed: int) -> np.ndarray:
    """Permutation of ``range(count)`` from raw PCG64 output.

    NumPy guarantees this stream forever; `Generator.permutation` may change between versions.
    """
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")


def permutation_of(count: int, seed: int, people: np.ndarray | None) -> np.ndarray:
    """`permutation` of ``count`` examples; with ``people`` (N,), of these, each with all examples."""
    if people is None:
        return permutation(count, seed)
    _, first, person = np.unique(people.astype(str), return_index=True, return_inverse=True)
    # people are numbered by their first example, so that one example each gives the permutation of examples
    numbers = np.argsort(np.argsort(first))
    places = np.argsort(permutation(len(first), seed))
    return np.argsort(places[numbers[person]], kind="stable")


def without_people_of(taken: np.ndarray, others: np.ndarray, people: np.ndarray) -> np.ndarray:
    """Positions ``others`` of examples, without those of a person in ``taken``."""
    names = people.astype(str)
    return others[~np.isin(names[others], names[taken])]
