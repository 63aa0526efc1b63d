"""Features of images by a public network, as docs/public-network.md has it: from weights to predictions."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torchvision import models

from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.declaration import check_declared
from dprepro.pipeline.data.own import trunk
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.methods.spending import statement
from dprepro.pipeline.params.own import PublicNetwork
from dprepro.pipeline.results import records
from dprepro.pipeline.results.weights import weights_path
from tests.docs.blocks import begin, blocks
from tests.laboratory import new_row, refused, run, train
from tests.not_none import not_none
from tests.refusal import refusal_of

SIZE = 32
(SCHEMA,) = (block.text for block in blocks("docs/public-network.md") if block.language == "yaml")
NETWORK = SCHEMA.replace("resnet18.pth", "net.pth").replace("-1k", f"\n  size: {SIZE}")


def network(path: Path) -> PublicNetwork:
    return PublicNetwork(
        architecture="resnet18", features=512, weights=path.name, digest=digest_file(path),
        source="example.org", licence="BSD-3-Clause", trained_on="ImageNet", size=SIZE,
    )  # fmt: skip


@pytest.fixture(scope="module")
def resnet() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net: torch.nn.Module = models.resnet18(weights=None).eval()
    return net


@pytest.fixture(scope="module")
def lab(resnet: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A laboratory with images of two colours, a network's features of them and a linear layer's row."""
    root = tmp_path_factory.mktemp("vision")
    draw = np.random.default_rng(0)
    for name, channel in (("red", 0), ("blue", 2)):
        (root / "images" / name).mkdir(parents=True)
        for number in range(60):
            pixels = draw.integers(0, 60, (40, 30 + number % 5, 3), dtype=np.uint8)
            pixels[..., channel] += 180
            Image.fromarray(pixels).save(root / "images" / name / f"{number}.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        begin(root / "lab")
        patch.chdir("lab")
        torch.save(resnet.state_dict(), "net.pth")
        Path("network.yaml").write_text(NETWORK)
        run("new data mine --images ../images --schema network.yaml")
        new_row("probe --data mine --model logistic --method dpsgd --epsilon 128 --epochs 8")
        train("probe")
        run("export probe out")
    return root / "lab"


def test_features_are_the_networks_without_its_last_layer(resnet: torch.nn.Module, tmp_path: Path) -> None:
    torch.save(resnet.state_dict(), tmp_path / "net.pth")
    images = np.random.default_rng(1).integers(0, 256, (3, 1, SIZE, SIZE), dtype=np.uint8)
    found = trunk.features(images, network(tmp_path / "net.pth"), tmp_path)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    inputs = torch.from_numpy(images).float().div(255).repeat(1, 3, 1, 1)
    with torch.no_grad():
        expected = resnet((inputs - mean.view(3, 1, 1)) / std.view(3, 1, 1))
        ours = resnet.get_submodule("fc")(torch.from_numpy(found))
    assert found.shape == (3, 512)
    assert torch.allclose(ours, expected, atol=1e-5)


def test_equal_images_have_equal_features_wherever_they_are(resnet: torch.nn.Module, tmp_path: Path) -> None:
    """So a public example that equals a private one is found, also in the last pass."""
    torch.save(resnet.state_dict(), tmp_path / "net.pth")
    images = np.random.default_rng(1).integers(0, 256, (trunk.PASS + 1, 1, 64, 64), dtype=np.uint8)
    images[-1] = images[0]
    found = trunk.features(images, network(tmp_path / "net.pth"), tmp_path)
    assert np.array_equal(found[-1], found[0])
    assert found.shape == (trunk.PASS + 1, 512)


def test_the_ledger_names_the_public_network(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab)
    data = prepared.load("mine")
    assert data.input_shape == (512,)
    training = not_none(records.read_ledgers("probe")).entries[0]
    use = statement("public_network", network="resnet18, trained on ImageNet")
    assert use in training.ledger.not_covered
    assert statement("feature_range") not in training.ledger.not_covered
    told = json.loads(Path("out/privacy-statement.json").read_text())
    assert any("resnet18, trained on ImageNet" in public for public in told["declared_public"])
    assert not_none(records.read_evaluation("probe")).trainings[0].metrics["test_accuracy"] > 0.8


def test_an_exported_folder_predicts_from_images_alone(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [
        lab.parent / "images" / name / f"{number}.png" for name in ("red", "blue") for number in range(10)
    ]
    run(f"predict {lab / 'out'} {' '.join(map(str, paths))} --out found.csv")
    with open("found.csv") as file:
        found = [line["class"] for line in csv.DictReader(file)]
    assert np.mean([each == path.parent.name for each, path in zip(found, paths, strict=True)]) > 0.8
    # arrays of any size are scaled by the network, those of other channels are refused
    np.savez("arrays.npz", inputs=np.zeros((2, 3, 20, 24), np.uint8))
    assert run(f"predict {lab / 'out'} arrays.npz").count("arrays.npz") == 2
    np.savez("grey.npz", inputs=np.zeros((2, 1, 20, 24), np.uint8))
    assert "has examples of 1x20x24; the network takes 3x20x24" in refused(f"predict {lab / 'out'} grey.npz")


def test_a_replaced_file_of_weights_is_noticed(
    lab: Path, resnet: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab)
    before = Path("net.pth").read_bytes()
    other = {name: value + 1 for name, value in resnet.state_dict().items()}
    try:
        torch.save(other, "net.pth")
        for words in ("export probe again", "fetch mine", "prepare mine"):
            line = refused(words)
            assert "net.pth: its digest is" in line, words
        assert not Path("again").exists()
    finally:
        Path("net.pth").write_bytes(before)
    # a change in params.yaml makes the prepared data another declaration's
    settings = params.load()
    declared = settings.own["mine"]
    changed = declared.model_copy(update={"network": declared.network.model_copy(update={"size": 64})})  # type: ignore[attr-defined]
    other_settings = settings.model_copy(update={"own": {"mine": changed}})
    check_declared("mine", settings)
    with pytest.raises(UserError, match="encoding of mine"):
        check_declared("mine", other_settings)


def test_wrong_networks_and_weights_are_a_line(tmp_path: Path, resnet: torch.nn.Module) -> None:
    (tmp_path / "none.pth").write_bytes(b"hello world")
    images = np.zeros((1, 3, SIZE, SIZE), np.uint8)
    assert "allowed: torchvision's" in refusal_of(lambda: trunk.width("resnet1"))
    assert "no weights" in refusal_of(
        lambda: trunk.features(images, network(tmp_path / "none.pth"), tmp_path)
    )
    small = {name: value for name, value in resnet.state_dict().items() if "layer4" not in name}
    torch.save(small, tmp_path / "small.pth")
    line = refusal_of(lambda: trunk.features(images, network(tmp_path / "small.pth"), tmp_path))
    assert "no weights of resnet18: layer4" in line


@pytest.fixture(scope="module")
def tuned(lab: Path) -> Path:
    """The laboratory with two more rows on the images themselves: with adapters, and trained as a whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(lab)
        run("new data photos --images ../images --size 24")
        new = "--data photos --model pretrained --network network.yaml --method dpsgd --epsilon 8"
        new += " --batch 8 --epochs 0.2"
        new_row(f"adapted {new} --rank 2")
        new_row(f"whole {new}")
        for row in ("adapted", "whole"):
            train(row)
            run(f"export {row} {row}")
    return lab


@pytest.mark.parametrize("row", ["adapted", "whole"])
def test_a_public_network_is_tuned(
    tuned: Path, row: str, resnet: torch.nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tuned)
    trained = not_none(records.read_run(row)).trainings[0]
    use = statement("public_network", network="resnet18, trained on ImageNet")
    assert use in not_none(records.read_ledgers(row)).entries[0].ledger.not_covered
    weights = load_file(weights_path(row, *trained.key))
    exported, public = load_file(f"{row}/model.safetensors"), resnet.state_dict()
    if row == "adapted":
        assert {name.rpartition(".")[0].rpartition(".")[2] for name in weights} == {"down", "up", "fc"}
        assert all(value.any() for value in weights.values())  # the second layers begin at zero
        assert torch.equal(exported["1.layer1.0.conv1.layer.weight"], public["layer1.0.conv1.weight"])
    else:
        assert not torch.equal(weights["1.layer1.0.conv1.weight"], public["layer1.0.conv1.weight"])
        assert len(weights) == 22  # 20 convolutions, and the new last layer
    image = tuned.parent / "images" / "red" / "0.png"
    monkeypatch.chdir(tmp_path)  # without the file of weights
    assert "0.png" in run(f"predict {tuned / row} {image}")


def test_a_replaced_file_of_a_tuned_network_is_noticed(tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tuned)
    before = Path("net.pth").read_bytes()
    try:
        Path("net.pth").write_bytes(before[:-1])
        records.evaluation_path("whole").rename("kept.json")
        for words in ("plan adapted", "train whole", "evaluate whole", "export adapted again"):
            assert "net.pth: its digest is" in refused(words), words
    finally:
        Path("net.pth").write_bytes(before)
        Path("kept.json").rename(records.evaluation_path("whole"))


def test_a_model_that_can_not_take_the_data_is_refused(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab)
    line = refused("new row wrong --data mine --model lenet5 --method dpsgd --epsilon 8")
    assert line.endswith("model 'lenet5' can't take 512 features; allowed: lenet_300_100, logistic, mlp")
    line = refused("new row wrong --data mine --model pretrained --method dpsgd --epsilon 8")
    assert "network: model 'pretrained' needs one" in line
    line = refused(
        "new row wrong --data mine --model logistic --network network.yaml --method dpsgd --epsilon 8"
    )
    assert "network: model 'logistic' takes none" in line
