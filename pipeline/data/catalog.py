"""The raw data sets: which bytes they are, where they lie, what they may be used for.

Every file is pinned by size and checksum, so a download, a mirror and an archive are the same data or an
error. Sizes and checksums were taken from the sources named beside each entry and compared with real files
where those were at hand (MNIST, KMNIST, CIFAR-10's members, AG News' test file). CIFAR is used in its binary
layout only: the pickled one would execute what it holds.
"""

from dataclasses import dataclass, field
from typing import Literal

from pipeline.errors import UserError

Format = Literal["idx", "cifar10", "cifar100", "ag-news"]
OFFICIAL = "official"
SYNTHETIC = "synthetic"


@dataclass(frozen=True)
class File:
    """A file pinned by its bytes."""

    name: str
    size: int  # bytes
    checksum: str  # 'sha256:...', or 'md5:...' where nothing better was ever published


@dataclass(frozen=True)
class Archive:
    """A tar file whose members are (among others) an edition's files."""

    file: File
    folder: str  # of the members inside the archive
    addresses: tuple[str, ...]  # of the archive itself


@dataclass(frozen=True)
class Part:
    """The training or the test part of an edition, in the order of its files."""

    files: tuple[File, ...]
    count: int  # examples


@dataclass(frozen=True)
class Edition:
    """One version of a data set's bytes. The canonical files are never archives."""

    train: Part
    test: Part
    bases: tuple[str, ...] = ()  # addresses under which every file lies by its own name
    archives: tuple[Archive, ...] = ()
    note: str | None = None  # how it differs from the official edition

    @property
    def files(self) -> tuple[File, ...]:
        """All files, training part first."""
        return self.train.files + self.test.files


@dataclass(frozen=True)
class Entry:
    """A raw data set."""

    key: str
    title: str
    licence: str
    format: Format
    classes: tuple[str, ...]
    shape: tuple[int, ...] | None  # of one image (C, H, W); None for text
    editions: dict[str, Edition] = field(hash=False)
    # Folders of a mirror in which the files are looked for: ours, torchvision's and the archives' own.
    folders: tuple[str, ...] = ()

    def edition(self, name: str) -> Edition:
        """The edition called ``name``.

        Raises:
            UserError: there is none; the message lists those there are.
        """
        if name not in self.editions:
            raise UserError(
                f"params.yaml: raw.{self.key}.edition: {name!r} is not known; "
                f"allowed: {', '.join(self.editions)}"
            )
        return self.editions[name]


def get(key: str) -> Entry:
    """The raw data set called ``key``.

    Raises:
        UserError: the catalogue has no such data set; the message lists those it has.
    """
    if key not in CATALOG:
        raise UserError(f"params.yaml: raw.{key}: not in the catalogue; allowed: {', '.join(CATALOG)}")
    return CATALOG[key]


# Checksums: torchvision/datasets/mnist.py (md5, verified on the same files as these sha256).
_MNIST = Edition(
    train=Part(
        (
            File(
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            File(
                "train-labels-idx1-ubyte.gz",
                28_881,
                "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
        ),
        60_000,
    ),
    test=Part(
        (
            File(
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            File(
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
        10_000,
    ),
    # The author's own server comes last: it has long answered data requests with errors.
    bases=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ),
)

# Checksums: torchvision/datasets/mnist.py (md5, verified on the same files as these sha256).
_KMNIST = Edition(
    train=Part(
        (
            File(
                "train-images-idx3-ubyte.gz",
                18_165_135,
                "sha256:51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
            ),
            File(
                "train-labels-idx1-ubyte.gz",
                29_497,
                "sha256:e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
            ),
        ),
        60_000,
    ),
    test=Part(
        (
            File(
                "t10k-images-idx3-ubyte.gz",
                3_041_136,
                "sha256:edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
            ),
            File(
                "t10k-labels-idx1-ubyte.gz",
                5_120,
                "sha256:20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
            ),
        ),
        10_000,
    ),
    # One publisher, one server, reached both ways: no second official host exists.
    bases=(
        "https://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
    ),
)

# Checksums: archive from TensorFlow Datasets; members from ankane/torchvision-ruby, verified on real files.
_CIFAR10 = Edition(
    train=Part(
        (
            File(
                "data_batch_1.bin",
                30_730_000,
                "sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            ),
            File(
                "data_batch_2.bin",
                30_730_000,
                "sha256:a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            ),
            File(
                "data_batch_3.bin",
                30_730_000,
                "sha256:bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            ),
            File(
                "data_batch_4.bin",
                30_730_000,
                "sha256:014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            ),
            File(
                "data_batch_5.bin",
                30_730_000,
                "sha256:755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            ),
        ),
        50_000,
    ),
    test=Part(
        (
            File(
                "test_batch.bin",
                30_730_000,
                "sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            ),
        ),
        10_000,
    ),
    archives=(
        Archive(
            File(
                "cifar-10-binary.tar.gz",
                170_052_171,
                "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
            "cifar-10-batches-bin",
            # The second is Google's copy, made for tensorflow/swift-models; the author has one server only.
            (
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz",
            ),
        ),
    ),
)

# Checksums: archive from TensorFlow Datasets; members from ankane/torchvision-ruby (not at hand to verify).
_CIFAR100 = Edition(
    train=Part(
        (
            File(
                "train.bin",
                153_700_000,
                "sha256:f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
            ),
        ),
        50_000,
    ),
    test=Part(
        (
            File(
                "test.bin",
                30_740_000,
                "sha256:d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
            ),
        ),
        10_000,
    ),
    archives=(
        Archive(
            File(
                "cifar-100-binary.tar.gz",
                168_513_733,
                "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ),
            "cifar-100-binary",
            # No second host of the binary layout is known: others copy the pickled one.
            (
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                "http://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            ),
        ),
    ),
)
_CIFAR100_REORDERED = Edition(
    train=Part(
        (
            File(
                "train.bin",
                153_700_000,
                "sha256:cccefae6c39c0541e74ac09c7338278d068e4e02e79504612da331dec944baf4",
            ),
        ),
        50_000,
    ),
    test=Part(
        (
            File(
                "test.bin",
                30_740_000,
                "sha256:b7fb9496c967a250d08a28bcf9e9fc0d694a28e9c0c6132534d11e233aa0524e",
            ),
        ),
        10_000,
    ),
    note="the official images and labels; within a class the order is not the official one",
)

_AG_NEWS_TEST = Part(
    (
        File(
            "test.csv",
            1_857_427,
            "sha256:521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
        ),
    ),
    7_600,
)
# Checksums: torchtext/datasets/ag_news.py (md5) and Hugging Face's ag_news (size, sha256).
_AG_NEWS = Edition(
    train=Part(
        (
            File(
                "train.csv",
                29_470_338,
                "sha256:76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e",
            ),
        ),
        120_000,
    ),
    test=_AG_NEWS_TEST,
    # What torchtext downloads; the set's maker, Xiang Zhang, shares it by Google Drive, which asks questions.
    bases=("https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/",),
    archives=(
        # fast.ai's copy; size and md5 from fastai/data/external.py, members are checked on their own.
        Archive(
            File("ag_news_csv.tgz", 11_784_419, "md5:b86f328f4dbd072486591cb7a5644dcd"),
            "ag_news_csv",
            ("https://s3.amazonaws.com/fast-ai-nlp/ag_news_csv.tgz",),
        ),
    ),
)
_AG_NEWS_PARTIAL = Edition(
    train=Part(
        (
            File(
                "train.partial.csv",
                11_055_737,
                "sha256:f3fca5b6bdc1f3b98181637b0387567d813ef62c2b6ab3819152c8d12f5ba770",
            ),
        ),
        44_733,
    ),
    test=_AG_NEWS_TEST,
    note="44,733 of the 120,000 training rows, so N differs, and with it epsilon at a given noise",
)
_AG_NEWS_UNION = Edition(
    train=Part(
        (
            File(
                "train.union.csv",
                19_200_811,
                "sha256:53362aade2ea9364213e420810a8d0857fc76379f40ac01affd97374fc115a23",
            ),
        ),
        77_950,
    ),
    test=_AG_NEWS_TEST,
    note="77,950 of the 120,000 training rows (65 %), from splits in public repositories, in another order; "
    "N differs, and with it epsilon at a given noise",
)

_CIFAR_LICENCE = "none stated; for research, citing Krizhevsky, Learning Multiple Layers of Features, 2009"
_CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

CATALOG: dict[str, Entry] = {
    entry.key: entry
    for entry in (
        Entry(
            key="mnist",
            title="MNIST",
            licence="CC BY-SA 3.0",
            format="idx",
            classes=tuple("0123456789"),
            shape=(1, 28, 28),
            editions={OFFICIAL: _MNIST},
            folders=("", "mnist", "mnist/raw", "MNIST", "MNIST/raw"),
        ),
        Entry(
            key="kmnist",
            title="KMNIST",
            licence="CC BY-SA 4.0",
            format="idx",
            classes=("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
            shape=(1, 28, 28),
            editions={OFFICIAL: _KMNIST},
            folders=("", "kmnist", "kmnist/raw", "KMNIST", "KMNIST/raw"),
        ),
        Entry(
            key="cifar10",
            title="CIFAR-10",
            licence=_CIFAR_LICENCE,
            format="cifar10",
            classes=_CIFAR10_CLASSES,
            shape=(3, 32, 32),
            editions={OFFICIAL: _CIFAR10},
            folders=("", "cifar-10-batches-bin", "cifar10", "cifar10/cifar-10-batches-bin"),
        ),
        Entry(
            key="cifar100",
            title="CIFAR-100",
            licence=_CIFAR_LICENCE,
            format="cifar100",
            classes=tuple(_CIFAR100_CLASSES.split()),
            shape=(3, 32, 32),
            editions={OFFICIAL: _CIFAR100, "reordered": _CIFAR100_REORDERED},
            folders=("", "cifar-100-binary", "cifar100", "cifar100/cifar-100-binary"),
        ),
        Entry(
            key="ag-news",
            title="AG News",
            licence="none stated; its maker, A. Gulli, gives it for research and non-commercial use",
            format="ag-news",
            classes=("World", "Sports", "Business", "Sci/Tech"),
            shape=None,
            editions={OFFICIAL: _AG_NEWS, "partial": _AG_NEWS_PARTIAL, "union": _AG_NEWS_UNION},
            folders=("", "ag-news", "ag_news", "ag_news_csv", "AG_NEWS"),
        ),
    )
}
