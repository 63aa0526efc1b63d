"""A person's own files: declared, checked, split like the catalogue's, and refused in one line otherwise."""

import io
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dprepro.errors import Notice
from dprepro.pipeline.data.fetch import fetch
from dprepro.pipeline.data.own import images, npz, private, texts
from dprepro.pipeline.data.prepare import load, prepare
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.identity.entries import entries
from tests.data.own_files import declare, made, settings_of
from tests.refusal import refusal_of

COUNT = 90
CLASSES = ["class-0", "class-1", "class-2"]
FEATURES = {"kind": "features", "shape": [12]}


def drawn(count: int = COUNT, shape: tuple[int, ...] = (8, 6)) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    return generator.integers(0, 256, (count, *shape), dtype=np.uint8), np.arange(count) % 3


def write_npz(root: Path, name: str = "mine.npz", **arrays: np.ndarray) -> str:
    inputs, labels = drawn()
    np.savez(root / name, allow_pickle=True, **({"inputs": inputs, "labels": labels} | arrays))
    return name


def write_images(folder: Path, count: int = COUNT, shape: tuple[int, ...] = (8, 6, 3)) -> str:
    for index, (pixels, label) in enumerate(zip(*drawn(count, shape), strict=True)):
        place = folder / f"class-{label}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{index:03}.png")
    (folder / "class-0/notes.txt").write_text("no image")
    return folder.name


def write_texts(path: Path, count: int = COUNT) -> str:
    lines = [f'"word{n % 7}, word{n % 5} {n}",class {n % 3}' for n in range(count)]
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path.name


WRITERS: dict[str, Callable[[Path], str]] = {
    "npz": write_npz,
    "images": lambda root: write_images(root / "mine"),
    "texts": lambda root: write_texts(root / "mine.csv"),
}


def refused(root: Path, declared: dict[str, Any]) -> str:
    """Why declared files are not fetched."""
    return refusal_of(lambda: fetch("mine", settings_of(declared), root))


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_becomes_four_splits(tmp_path: Path, kind: str) -> None:
    done = made(tmp_path, settings_of(declare(tmp_path, kind, WRITERS[kind](tmp_path))))
    counts = {"train": 68, "validation": 7, "test": 15, "public": 0}
    assert {name: len(split) for name, split in done.splits.items()} == done.manifest["counts"] == counts
    assert done.classes == 3
    shape = {"npz": (1, 8, 6), "images": (3, 8, 6), "texts": (32,)}[kind]
    assert all(split.inputs.shape[1:] == shape for split in done.splits.values())
    about = done.manifest["raw"]["mine"]
    assert about["edition"] == "own"
    for name, digest in about["files"].items():
        assert digest_file(tmp_path / "data/raw/mine" / name) == digest
    if kind == "texts":
        assert done.input_shape == (32, done.manifest["text"]["vocabulary"])
        assert done.manifest["classes"] == ["class 0", "class 1", "class 2"]


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    write_images(tmp_path / "mine")
    os.mkfifo(tmp_path / "mine/class-1/pipe.png")
    assert "pipe.png: no regular file" in refusal_of(lambda: declare(tmp_path, "images", "mine"))
    (tmp_path / "itself.npz").symlink_to("itself.npz")
    assert "itself.npz: missing" in refusal_of(lambda: private.protected(str(tmp_path / "itself.npz")))
    os.mkfifo(tmp_path / "pipe.npz")
    assert "pipe.npz: no regular file" in refusal_of(lambda: declare(tmp_path, "npz", "pipe.npz"))


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [
        ("npz", "a file, or a folder with train.npz and test.npz"),
        ("texts", "a file, or a folder with train.csv and test.csv"),
        (
            "images",
            "a folder of images for each of two or more classes in it, or train and test with such folders",
        ),
    ],
)
def test_a_layout_that_is_none_is_told_what_is_one(tmp_path: Path, kind: str, allowed: str) -> None:
    """Of a folder with one part of two, and of one without labels."""
    write_images(tmp_path / "mine/train")
    (tmp_path / "mine/train.npz").touch()
    (tmp_path / "mine/train.csv").touch()
    for path in ("mine", "mine/train/class-0"):
        line = refusal_of(partial(declare, tmp_path, kind, path))
        assert line == f"{tmp_path / path}: not as --{kind} takes it; allowed: {allowed}"


def test_images_are_read_as_they_were_saved(tmp_path: Path) -> None:
    folder = tmp_path / write_images(tmp_path / "mine")
    read = images.read(folder, ["class-2", "class-0", "class-1"], (3, 8, 6), False)
    pixels, labels = drawn(COUNT, (8, 6, 3))
    expected = np.concatenate([pixels[labels == label] for label in (2, 0, 1)]).transpose(0, 3, 1, 2)
    assert np.array_equal(read.inputs, expected)
    assert np.bincount(read.labels).tolist() == [30, 30, 30]


def test_transparent_images_are_put_on_a_white_ground(tmp_path: Path) -> None:
    """A drawing in the alpha channel trained as black; an opaque alpha channel changes nothing."""
    palette = Image.new("P", (8, 6))
    palette.putpalette([200, 100, 0])
    palette.save(tmp_path / "palette.png", transparency=bytes(256))
    half = Image.new("RGBA", (8, 6), (0, 0, 0, 51))
    half.save(tmp_path / "half.png")
    half.convert("LA").save(tmp_path / "grey.png")
    Image.new("RGB", (8, 6), (9, 9, 9)).save(tmp_path / "key.png", transparency=(9, 9, 9))
    Image.new("RGBA", (8, 6), (200, 100, 0, 255)).save(tmp_path / "opaque.png")
    seen = {"palette": [255] * 3, "half": [204] * 3, "grey": [204] * 3, "key": [255] * 3}
    for name, pixel in seen.items():
        with pytest.warns(Notice, match="transparent images are put on a white ground"):
            read = images.read_image(tmp_path / f"{name}.png", (3, 6, 8), False)
        assert read[:, 0, 0].tolist() == pixel
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert images.read_image(tmp_path / "opaque.png", (3, 6, 8), False)[:, 0, 0].tolist() == [200, 100, 0]


def test_other_parts_are_said_to_be_left_out(tmp_path: Path) -> None:
    """The images of `val` vanished without a word."""
    for name in ("train", "test", "val"):
        write_images(tmp_path / "mine" / name)
    with pytest.warns(Notice, match=r"mine: left out: 'val'; the parts are train and test"):
        declared = declare(tmp_path, "images", "mine")
    assert declared["own"]["mine"]["classes"] == CLASSES
    assert len(made(tmp_path, settings_of(declared)).splits["test"]) == COUNT
    for one, other in (("a", "b"), ("fold1", "fold2")):
        write_images(tmp_path / "folds" / one)
        write_images(tmp_path / "folds" / other)
    told = refusal_of(lambda: declare(tmp_path, "images", "folds"))
    assert "a and b both have folders 'class-0' and 'class-1', so they are no classes" in told


def test_a_class_may_be_named_train_and_each_class_may_hold_a_folder_of_its_images(tmp_path: Path) -> None:
    write_images(tmp_path / "mine")
    for label, name in enumerate(("bus", "car", "train")):
        (tmp_path / f"new/{name}").mkdir(parents=True)
        (tmp_path / f"mine/class-{label}").rename(tmp_path / f"new/{name}/images")
    assert declare(tmp_path, "images", "new")["own"]["mine"]["classes"] == ["bus", "car", "train"]


def test_hidden_files_are_no_examples_and_other_endings_are_counted(tmp_path: Path) -> None:
    """A copy of an image in a hidden folder made its person count twice."""
    folder = tmp_path / write_images(tmp_path / "mine")
    before = declare(tmp_path, "images", "mine")
    picture = (folder / "class-0/000.png").read_bytes()
    hidden = (
        "class-0/.ipynb_checkpoints/000.png",
        "class-1/._x.png",
        "class-1/.trash/sub/2.png",
        ".cache/a.png",
    )
    for name in (*hidden, "__MACOSX/class-0/000.png", "class-2/@eaDir/1.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture)
    for name in ("a.tif", "b.TIF", "c.jfif", "d"):
        (folder / "class-0" / name).write_bytes(picture)
    with pytest.warns(Notice) as told:
        assert declare(tmp_path, "images", "mine") == before
    words = [str(each.message) for each in told]
    counts = ".jfif 1, .png 6, .tif 2, .txt 1, no ending 1"
    assert any(f"left out: {counts}; images end in" in line for line in words)


def test_images_of_several_sizes_are_cut_and_scaled_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / write_images(tmp_path / "mine", shape=(12, 20))
    Image.fromarray(np.full((40, 16), 200, np.uint8)).save(folder / "class-1/tall.jpg")
    assert "--size cuts and scales" in refusal_of(lambda: declare(tmp_path, "images", "mine"))
    declared = declare(tmp_path, "images", "mine", resize=True, shape=(1, 10, 10))
    assert declared["own"]["mine"]["shape"] == [1, 10, 10]
    data = made(tmp_path, settings_of(declared))
    assert data.input_shape == (1, 10, 10)
    del declared["own"]["mine"]["resize"]
    assert "12x20 pixels instead of 10x10" in refused(tmp_path, declared)


def test_it_is_split_as_the_catalogue_splits(tmp_path: Path) -> None:
    """The same examples, with the same test part, come out as the same bytes."""
    raw = {"mnist": {"train": 80, "test": 20}}
    split = {"raw": "mnist", "train": 50, "validation": 10, "public": {"raw": "mnist", "count": 8}}
    settings = settings_of({"data": {"theirs": split}, "raw": raw})
    fetch("mnist", settings, tmp_path)
    theirs = prepare("theirs", settings, tmp_path)
    parts = load("mnist", settings, tmp_path).parts
    arrays = {f"{part}_{kind}": getattr(parts[part], kind) for part in parts for kind in ("inputs", "labels")}
    write_npz(tmp_path, **{name.removeprefix("train_"): array for name, array in arrays.items()})
    declared = declare(tmp_path, "npz", "mine.npz")
    declared["own"]["mine"] |= {"test": None, "test_inputs": "test_inputs", "test_labels": "test_labels"}
    declared["data"]["mine"] |= {"train": 50, "validation": 10, "public": {"raw": "mine", "count": 8}}
    ours = made(tmp_path, settings_of(declared)).manifest
    assert ours["digests"] == theirs["digests"]
    same = {"counts", "balance", "duplicates", "classes", "seed", "input_shape"}
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}


@pytest.mark.parametrize("kind", WRITERS)
def test_parts_of_their_own(tmp_path: Path, kind: str) -> None:
    (tmp_path / "mine").mkdir()
    for part, count in (("train", 60), ("test", 30)):
        if kind == "npz":
            inputs, labels = drawn(count)
            write_npz(tmp_path, f"mine/{part}.npz", inputs=inputs, labels=labels)
        elif kind == "images":
            write_images(tmp_path / "mine" / part, count)
        else:
            write_texts(tmp_path / f"mine/{part}.csv", count)
    done = made(tmp_path, settings_of(declare(tmp_path, kind, "mine")))
    assert done.manifest["counts"] == {"train": 54, "validation": 6, "test": 30, "public": 0}
    line = refusal_of(lambda: declare(tmp_path, kind, "mine", test=9))
    assert line == f"own.mine.test: 9; not allowed beside the test part of {tmp_path}/mine"


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    declared = declare(tmp_path, "npz", write_npz(tmp_path))
    settings = settings_of(declared)
    made(tmp_path, settings_of(declared))
    write_npz(tmp_path, labels=(np.arange(COUNT) + 1) % 3)
    line = refused(tmp_path, declared)
    assert f"its digest is {digest_file(tmp_path / 'mine.npz')}, but params.yaml has own.mine.digest" in line
    # once that is meant, what was fetched before isn't what is declared
    declared["own"]["mine"]["digest"] = digest_file(tmp_path / "mine.npz")
    other = settings_of(declared)
    assert "data/raw/mine: holds other files" in refusal_of(lambda: prepare("mine", other, tmp_path))
    assert entries(settings)["own"]["mine"] != entries(other)["own"]["mine"]
    (tmp_path / "data/raw/mine/all.npz").write_bytes(b"")
    assert "all.npz: truncated or corrupt" in refusal_of(lambda: load("mine", settings, tmp_path))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"path": "/etc/passwd"}, "own.mine.path: '/etc/passwd' leads outside this folder"),
        ({"path": "a/../../b"}, "own.mine.path: 'a/../../b' leads outside this folder"),
        ({"classes": ["a", "b", "a"]}, "own.mine.classes: 'a' stands there twice"),
        ({"kind": "pickle"}, "own.mine.kind: 'pickle'; allowed: npz, features, images, texts"),
        ({"test_inputs": "x"}, "own.mine.test_inputs: goes with 'test_labels', and only with it"),
        (FEATURES | {"range": [1, -1]}, "range: [1.0, -1.0]; allowed: the lower end first"),
        (FEATURES | {"clip": True}, "own.mine.clip: goes with 'range', and only with it"),
    ],
)
def test_declarations_that_are_none(tmp_path: Path, change: dict[str, Any], line: str) -> None:
    declared = declare(tmp_path, "npz", write_npz(tmp_path))
    declared["own"]["mine"] |= change
    told = refusal_of(lambda: settings_of(declared))
    assert told.startswith("params.yaml: own.mine.")
    assert line in told


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"test": 90}, "own.mine.test: 90; allowed: less than the 90 examples"),
        ({"classes": ["a", "b"]}, "has the label 2; allowed: 0 to 1"),
        ({"classes": ["a", "b", "c", "d"]}, "its train part has no example of 'd'"),
        ({"shape": [1, 6, 8]}, "has examples of 1x8x6; own.mine.shape in params.yaml says 1x6x8"),
        ({"inputs": "x"}, "mine.npz: no array 'x'; there are: 'inputs', 'labels'"),
        ({"path": "other.npz"}, "other.npz: missing; params.yaml has own.mine.path: other.npz"),
    ],
)
def test_files_that_are_not_as_declared(tmp_path: Path, change: dict[str, Any], line: str) -> None:
    declared = declare(tmp_path, "npz", write_npz(tmp_path))
    declared["own"]["mine"] |= change
    assert line in refused(tmp_path, declared)
    assert not (tmp_path / "data/raw/mine").exists()


@pytest.mark.parametrize(
    ("arrays", "line"),
    [
        ({"labels": np.array([{}] * COUNT)}, "'labels': no array in an npz file of numbers"),
        ({"inputs": np.zeros((COUNT, 8, 6))}, "float64 of shape (90, 8, 6); allowed: floats (N, D) or (N,"),
        ({"inputs": np.full((COUNT, 4), np.nan)}, "'inputs' has values that are no finite float32"),
        ({"inputs": np.full((COUNT, 8, 6), 256)}, "'inputs' is of int64; allowed: whole numbers from 0"),
        ({"inputs": np.zeros((COUNT, 8, 6, 5), np.uint8)}, "'inputs' is of shape (90, 8, 6, 5)"),
        ({"labels": np.zeros((COUNT, 3), np.int64)}, "'labels' is int64 of shape (90, 3)"),
        ({"labels": np.arange(COUNT + 1) % 3}, "but 'labels' has 91 labels"),
        ({"labels": np.arange(COUNT) % 3 + 1}, "has the label 3"),
        ({"labels": np.arange(COUNT) % 3 - 1}, "'labels' has labels from -1 to 1; allowed: 0 to 9999"),
    ],
)
def test_arrays_that_are_none(tmp_path: Path, arrays: dict[str, np.ndarray], line: str) -> None:
    good = declare(tmp_path, "npz", write_npz(tmp_path))
    write_npz(tmp_path, "mine.npz", **arrays)
    good["own"]["mine"]["digest"] = digest_file(tmp_path / "mine.npz")
    assert line in refused(tmp_path, good)


def header(shape: tuple[int, ...], kind: str = "|u1") -> bytes:
    told = repr({"descr": kind, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(told)) + told.encode()


@pytest.mark.parametrize(
    "content",
    [
        *(header((1 << 20, 1 << 20)), header((90, 8, 6)) + bytes(100), header((90,), "|O"), b""),
        *(b"\x93NUMPY\x03\x00", header((90, 8, 6))[:-20] + b"(" * 19 + b"\n"),
    ],
)
def test_an_array_promises_what_it_does_not_hold(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inputs.npy", content)
    read = partial(npz.read, path, "inputs", "labels")
    assert "mine.npz: " in refusal_of(read)
    path.write_bytes(path.read_bytes()[:-40])
    assert "no array in an npz file" in refusal_of(read)


def png(width: int, height: int) -> bytes:
    """A PNG that says its size and holds a few bytes."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    ends = chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + ends


def saved(picture: np.ndarray | Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    content = io.BytesIO()
    image = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture
    image.save(content, kind, **options)
    return content.getvalue()


def turned() -> bytes:
    """A photo whose camera was held upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(GREY, "JPEG", exif=exif)


GREY = np.full((9, 6), 7, np.uint8)
MOVING = [Image.fromarray(GREY + n) for n in range(3)]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (png(8000, 8000), "8000x8000 pixels; allowed: up to 50,000,000 in an image"),
        (png(10_000, 10_000), "more pixels than are allowed"),
        (png(6, 8), "6 pixels"),
        (b"GIF89a", "not an image of PNG, JPEG, PPM, BMP, WEBP"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "not an image of PNG"),
        (saved(np.zeros((8, 6), np.uint16)), "more than 8 bits a value"),
        (saved(np.zeros((9, 6, 3), np.uint8)), "is in colour"),
        (saved(GREY)[:-12], "truncated"),  # all its pixels are there
        (saved(Image.new("CMYK", (6, 9)), "JPEG"), "colours are CMYK; allowed: grey or RGB"),
        (turned(), "EXIF orientation 6 asks viewers to turn it; allowed: pixels stored as they are seen"),
        (
            saved(MOVING[0], save_all=True, append_images=MOVING[1:]),
            "is animated; allowed: one picture a file",
        ),
    ],
)
def test_images_that_are_none(tmp_path: Path, content: bytes, line: str) -> None:
    folder = tmp_path / write_images(tmp_path / "mine", shape=(9, 6))
    (folder / "class-0/000.png").write_bytes(content)
    assert line in refusal_of(lambda: images.read(folder, CLASSES, (1, 9, 6), False))


def test_folders_that_are_not_the_classes(tmp_path: Path) -> None:
    declared = declare(tmp_path, "images", write_images(tmp_path / "mine"))
    (tmp_path / "mine/other").mkdir()
    assert "mine/other: no class of own.mine.classes" in refused(tmp_path, declared)
    (tmp_path / "mine/other").rmdir()
    (tmp_path / "mine/class-1").rename(tmp_path / "away")
    assert "mine/class-1: missing" in refused(tmp_path, declared)
    (tmp_path / "mine/class-1").mkdir()
    declared["own"]["mine"]["digest"] = refused(tmp_path, declared).split()[4][:-1]
    assert "no example of 'class-1'" in refused(tmp_path, declared)


def test_nothing_leads_out_of_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    declared = declare(root, "images", write_images(root / "mine"))
    secret = tmp_path / "secret.png"
    (root / "mine/class-0/000.png").rename(secret)
    os.symlink(secret, root / "mine/class-0/000.png")
    assert "000.png: leads out of" in refused(root, declared)
    (root / "mine").rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", root / "mine")
    assert "leads out of" in refused(root, declared)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "not a CSV file: 'No columns"),
        (b"text;label\na;b\n", "no column 'text'; there are: 'text;label'"),
        ("text,label\na,b\n".encode("utf-16"), "not UTF-8 at byte 0"),
        (b"text,label\na,b\nc\n", "row 3: no text or no label"),
        (b"text,label\na,b,c\n", "line 2: 3 values; the first line has 2 names"),
        (
            b"# texts of 2023\ntext,label\na,b\n",
            "line 1: '# texts of 2023'; allowed: the names of the columns",
        ),
        (b"text,,label\na,b,c\n", "line 1: column 2 has no name"),
        ("te\u0301xt,label\na,b\n".encode(), "no column 'text'; there are"),
        (b'text,label\n"a,b\n', "not a CSV file"),
        (b"text,label\na,other\n", "row 2: label is 'other'; allowed: 'b'"),
    ],
)
def test_texts_that_are_none(tmp_path: Path, content: bytes, line: str) -> None:
    (tmp_path / "mine.csv").write_bytes(content)
    assert line in refusal_of(lambda: texts.read(tmp_path / "mine.csv", "text", "label", ["b"]))


def test_a_quoted_empty_value_of_one_column_is_an_example(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_bytes(b'text\n\n""\nx\n  \n" "\n"\n"\ny\n')
    assert texts.csv_frame(tmp_path / "mine.csv")["text"].tolist() == ["", "x", " ", "\n", "y"]


def test_words_that_look_like_nothing_are_words(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_bytes("\ufefftext,label\nNA,null\n007,1e5\n".encode())
    read = texts.read(tmp_path / "mine.csv", "text", "label", ["1e5", "null"])
    assert (read.inputs.tolist(), read.labels.tolist()) == (["NA", "007"], [1, 0])
