"""`prepare`: declared splits that share nothing, with a manifest anyone can check."""

from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.fetch import fetch
from dprepro.pipeline.data.prepare import prepare
from dprepro.pipeline.data.prepared import SPLITS
from dprepro.pipeline.data.raw import RAW
from dprepro.pipeline.data.splits import Selection, check_disjoint, duplicates, permutation, select
from dprepro.pipeline.files import digest, digest_file
from dprepro.pipeline.methods.dpsgd.settings import DpsgdSettings
from dprepro.pipeline.params import Data, Settings, Text
from dprepro.pipeline.training.not_covered import data_uses
from tests.refusal import refusal_of

MNIST = {"raw": "mnist", "train": 200, "validation": 50, "public": {"raw": "kmnist", "count": 16}}
NEWS = {
    **{"raw": "ag-news", "train": 120, "validation": 20, "public": {"raw": "ag-news", "count": 10}},
    "text": {"tokens": 12, "vocabulary": 50},
}

SETTINGS = DpsgdSettings(batch=10, epochs=1, learning_rate=0.1, epsilon=1)

# Of MNIST's 200 training positions at seed 0, as little-endian int64.
PERMUTED = "sha256:60a8b396ab7c966fc5fd6adff4d271069a0922d1aa53f91a0e7e2f6ef6ecbab4"


def run(params, root: Path, **data: dict) -> prepared.Prepared:
    """Fetch what the data set needs, prepare it and read it back."""
    settings: Settings = params(data=data)
    (name,) = data
    for raw in {data[name]["raw"], data[name]["public"]["raw"]}:
        fetch(raw, settings, root)
    prepare(name, settings, root)
    return prepared.load(name, root)


def refused(params, root: Path, **data: dict) -> str:
    return refusal_of(lambda: run(params, root, **data))


def test_splits_and_manifest(params, tmp_path):
    done = run(params, tmp_path, small=MNIST)
    counts = {"train": 200, "validation": 50, "test": 60, "public": 16}
    assert {name: len(split) for name, split in done.splits.items()} == done.manifest["counts"] == counts
    for split in done.splits.values():
        assert split.inputs.shape == (len(split), 1, 28, 28)
        assert (split.inputs.dtype, split.labels.dtype) == (np.uint8, np.int64)
    assert done.classes == 10
    assert done.manifest["input_shape"] == [1, 28, 28]
    assert {key: raw["edition"] for key, raw in done.manifest["raw"].items()} == {
        "mnist": "synthetic",
        "kmnist": "synthetic",
    }
    assert done.manifest["balance"]["test"] == np.bincount(done.splits["test"].labels).tolist() == [6] * 10
    folder = tmp_path / "data/prepared/small"
    arrays = {path.name.removesuffix(".npy"): digest_file(path) for path in folder.glob("*.npy")}
    assert done.digests == arrays
    assert set(arrays) == {f"{split}.{kind}" for split in SPLITS for kind in ("inputs", "labels", "indices")}
    for raw, about in done.manifest["raw"].items():
        for name, checksum in about["files"].items():
            assert digest_file(tmp_path / RAW / raw / name) == checksum


def test_the_same_input_gives_the_same_bytes(params, tmp_path):
    """The pinned digest ties the permutation too: no version of NumPy may change a split."""
    folders = []
    for name in ("a", "b"):
        run(params, tmp_path / name, small=MNIST)
        folder = tmp_path / name / "data/prepared/small"
        folders.append({path.name: digest_file(path) for path in folder.iterdir()})
    assert folders[0] == folders[1]
    indices = np.load(tmp_path / "a/data/prepared/small/train.indices.npy")
    assert digest(indices.astype("<i8").tobytes()) == PERMUTED


def test_d_pub_is_split_off_the_training_part(params, tmp_path):
    data = {**MNIST, "train": 220, "validation": 50, "public": {"raw": "mnist", "count": 30}}
    done = run(params, tmp_path, dpub=data)
    folder = tmp_path / "data/prepared/dpub"
    indices = [set(np.load(folder / f"{split}.indices.npy")) for split in ("train", "validation", "public")]
    assert sum(map(len, indices)) == 300
    assert set.union(*indices) == set(range(300))
    assert list(done.manifest["raw"]) == ["mnist"]
    contents = {name: {image.tobytes() for image in split.inputs} for name, split in done.splits.items()}
    assert not contents["public"] & (contents["train"] | contents["validation"] | contents["test"])


def test_text(params, tmp_path):
    done = run(params, tmp_path, news=NEWS)
    folder = tmp_path / "data/prepared/news"
    words = (folder / "vocabulary.txt").read_text().splitlines()
    assert words[:2] == ["<pad>", "<unk>"]
    assert len(words) == done.manifest["text"]["vocabulary"] == 52
    assert "not covered by any epsilon" in done.manifest["text"]["note"]
    assert done.manifest["text"]["digest"] == digest_file(folder / "vocabulary.txt")
    for split in done.splits.values():
        assert split.inputs.shape == (len(split), 12)
        assert split.inputs.dtype == np.int32
        assert split.inputs.max() < len(words)
    # By hand: lower case, the full stop a token of its own, and no words but the training split's.
    rows = (tmp_path / RAW / "ag-news/train.csv").read_text().splitlines()
    texts = [
        rows[index][5:-1].replace('","', " ").lower().replace(".", " .").split()
        for index in np.load(folder / "train.indices.npy")
    ]
    counts = Counter(token for text in texts for token in text)
    assert words[2:] == sorted(counts, key=lambda token: (-counts[token], token))[:50]
    expected = [words.index(token) if token in words else 1 for token in texts[0][:12]]
    assert done.splits["train"].inputs[0].tolist() == expected


def test_text_as_public_word_vectors_has_no_vocabulary_of_private_words(params, tmp_path):
    text = Text(tokens=12, vectors="glove-6b-50d")
    done = run(params, tmp_path, news=NEWS | {"text": {"tokens": 12, "vectors": "glove-6b-50d"}})
    assert not (tmp_path / "data/prepared/news/vocabulary.txt").exists()
    assert done.input_shape == text.input_shape == text.stored_shape == (1, 12, 50)
    assert not done.has_vocabulary
    assert "GloVe 6B, 50 dimensions" in done.manifest["text"]["note"]
    for split in done.splits.values():
        assert split.inputs.shape == (len(split), 1, 12, 50)
        assert split.inputs.dtype == np.float32
    labels = run(params, tmp_path / "tokens", news=NEWS).splits["train"].labels
    np.testing.assert_array_equal(done.splits["train"].labels, labels)  # split alike
    assert [use.key for use in data_uses(done, SETTINGS)] == ["public_vectors", "own_public"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {**NEWS, "text": {"tokens": 5}},
            "data.x.text: vocabulary, vectors: both or neither; allowed: one of",
        ),
        (
            {**NEWS, "text": {"tokens": 5, "vocabulary": 5, "vectors": "glove-6b-50d"}},
            "data.x.text: vocabulary, vectors: both or neither; allowed: one of the two",
        ),
        ({**NEWS, "text": None}, "data.x.text: missing; 'ag-news' has texts"),
        ({"train": 251}, "train 251 + validation 50 is more than the 300 training examples of 'mnist'"),
        ({"public": {"raw": "kmnist", "count": 81}}, "count: 81, but of the train part of 'kmnist' only 80"),
        ({"public": {"raw": "kmnist", "part": "test", "count": 21}}, "only 20 examples can be public"),
        ({"public": {"raw": "mnist", "count": 51}}, "'mnist'; the public split has 51 of them"),
        ({"public": {"raw": "mnist", "part": "test", "count": 5}}, "public.part: 'test' is the test split"),
        ({"public": {"raw": "cifar10", "count": 5}}, "images of 3x32x32, but 'mnist' has images of 1x28x28"),
        ({"public": {"raw": "ag-news", "count": 5}}, "'ag-news' has texts, but 'mnist' has images"),
        ({"text": {"tokens": 5, "vocabulary": 5}}, "data.x.text: not allowed; 'mnist' has images"),
    ],
)
def test_declarations_that_do_not_fit(params, tmp_path, change, line):
    assert line in refused(params, tmp_path, x={**MNIST, **change})
    assert not (tmp_path / "data/prepared/x").exists()


def test_raw_files_must_be_there_whole_and_of_the_edition_asked_for(params, tmp_path):
    def told(name: str = "small", source: str = "synthetic") -> str:
        return refusal_of(lambda: prepare(name, params({"kind": source}, {"small": MNIST}), tmp_path))

    assert "data/raw/mnist: missing; run `dprepro fetch mnist` first" in told()
    run(params, tmp_path, small=MNIST)
    assert "holds edition 'synthetic', but params.yaml asks for 'official'" in told(source="official")
    images = tmp_path / RAW / "mnist/train-images-idx3-ubyte.gz"
    images.write_bytes(images.read_bytes()[:-1000])
    assert "train-images-idx3-ubyte.gz: truncated or corrupt" in told()
    images.unlink()
    assert "train-images-idx3-ubyte.gz: missing" in told()
    (tmp_path / RAW / "mnist/source.json").write_text("{")
    assert "source.json: can't be read" in told()
    assert "no data set 'big'; there are: small" in told("big")


def test_public_examples_are_the_first_whose_content_occurs_nowhere_else():
    """Of few letters many are twins: of D_pub in the same set, and of private examples in another."""
    for seed in range(50):
        draw = np.random.default_rng(seed)
        sizes = {("a", "train"): 9, ("a", "test"): 2, ("b", "train"): 8}
        keys = {part: [bytes([letter]) for letter in draw.integers(12, size=n)] for part, n in sizes.items()}
        private = keys["a", "train"] + keys["a", "test"]
        for raw in "ab":
            said = {"raw": "a", "seed": seed, "train": 3, "validation": 2}
            data = Data.model_validate(said | {"public": {"raw": raw, "count": 3}})
            choose = partial(select, "d", data, keys)
            order = permutation(len(keys[raw, "train"]), seed).tolist()
            fit = [place for place in order if private.count(keys[raw, "train"][place]) == (raw == "a")]
            if len(fit) < 3:
                assert f"only {len(fit)} examples can be public" in refusal_of(choose)
                continue
            selections, passed = choose()
            assert selections["public"].indices.tolist() == fit[:3]
            assert passed == order.index(fit[2]) - 2
            check_disjoint(selections, keys)


def test_disjointness_is_checked_and_repeats_are_counted():
    keys = {("a", "train"): [b"0", b"0", b"1", b"2"], ("a", "test"): [b"1"]}

    def split(part: str, *indices: int) -> Selection:
        return Selection("a", part, np.array(indices))

    fine = {"train": split("train", 0, 1), "test": split("test", 0), "public": split("train", 3)}
    check_disjoint(fine, keys)
    assert duplicates({**fine, "validation": split("train", 2)}, keys) == {
        "within": {"train": 1, "test": 0, "public": 0, "validation": 0},
        "between": {
            "train, test": 0,
            "train, public": 0,
            "train, validation": 0,
            "test, public": 0,
            "test, validation": 1,
            "public, validation": 0,
        },
    }
    with pytest.raises(RuntimeError, match="train and validation share 1"):
        check_disjoint({**fine, "validation": split("train", 1, 2)}, keys)
    with pytest.raises(RuntimeError, match="test and public share 1"):
        check_disjoint({"test": split("test", 0), "public": split("train", 2)}, keys)
