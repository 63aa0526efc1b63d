"""Rows of one's own data, of images and of texts: exported, read back, and used on new files."""

import csv
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from ruamel.yaml import YAML

from dprepro.pipeline import extensions, params
from dprepro.pipeline.data import prepared
from dprepro.pipeline.export import folder as exporting
from dprepro.pipeline.export.inputs import read_inputs
from dprepro.pipeline.export.privacy_statement import OF_RECORDS
from dprepro.pipeline.files import digest_file, digest_json
from dprepro.pipeline.ledgers import sentences
from dprepro.pipeline.reporting.privacy import not_covered
from dprepro.pipeline.results import records
from dprepro.pipeline.results.weights import weights_path
from tests.conftest import forgetting
from tests.laboratory import NOTHING, declare, laboratory, new_data, new_row, refused, run, train
from tests.made_records import stripes

IMAGES, TEXTS, VECTORS = "stripes", "words", "vectors"
OTHERWISE = "here computes otherwise"


def with_vectors(declared: Any) -> None:
    text = {"tokens": 8, "vectors": "glove-6b-50d"}
    declared["data"]["known"] = {**declared["data"]["said"], "text": text}
    declared["rows"][VECTORS] = {**declared["rows"][TEXTS], "data": "known"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with two trained rows, both exported, and files to predict."""
    root = tmp_path_factory.mktemp("world")
    with laboratory(root):
        images, labels = stripes(600)
        np.savez("mine.npz", pictures=images, labels=labels)
        np.savez("known.npz", inputs=255 - images[:100], labels=labels[:100])
        with open("texts.csv", "w") as file:
            sentences = ("a fine and lovely day", "an awful and dreadful night")
            lines = [
                (f"{sentences[number % 2]} {number}", ("good", "bad")[number % 2]) for number in range(300)
            ]
            csv.writer(file).writerows([("body", "mood"), *lines])
        run("new data also-known --npz known.npz")
        Path("mine.yaml").write_text("{inputs: pictures, public: {raw: also-known, count: 4}}\n")
        run("new data mine --npz mine.npz --schema mine.yaml")
        Path("said.yaml").write_text("text: body\n")
        run("new data said --texts texts.csv --label mood --schema said.yaml")
        dpsgd = "--method dpsgd --epsilon 8 --learning-rate 1 --epochs 1"
        new_row(f"{IMAGES} --data mine --model lenet5 --seeds 2 {dpsgd}")
        new_row(f"{TEXTS} --data said --model bilstm {dpsgd}")
        declare(with_vectors)
        run("prepare known")
        train(IMAGES, TEXTS, VECTORS)
        for row in (IMAGES, TEXTS, VECTORS):
            run(f"export {row} out/{row}")
        yield root


@pytest.fixture
def here(world: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(world)
    return world


def predicted(network: str, *files: str) -> list[dict[str, str]]:
    run(f"predict {network} {' '.join(files)} --out found.csv")
    with open("found.csv") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("row", "data", "files"),
    [(IMAGES, "mine", "new.npz"), (TEXTS, "said", "new.csv"), (VECTORS, "known", "new.csv")],
)
def test_an_exported_network_reaches_the_measured_accuracy(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, data: str, files: str
) -> None:
    """The test part as files of a user, classified far from the data and from params.yaml."""
    test, (measured, *_) = prepared.load(data).splits["test"], records.read_evaluation(row).trainings
    indices = np.load(f"data/prepared/{data}/test.indices.npy")
    if row == IMAGES:
        np.savez(tmp_path / files, pictures=np.array(test.inputs))
    else:
        with open(tmp_path / files, "w") as file:
            said = Path("texts.csv").read_text().splitlines()[1:]
            part = np.sort(np.argsort(np.random.PCG64(0).random_raw(300), kind="stable")[:50])
            csv.writer(file).writerows(
                [("body",), *((said[part[index]].split(",")[0],) for index in indices)]
            )
    shutil.copytree(f"out/{row}", tmp_path / "model")
    classes = prepared.load(data).manifest["classes"]
    monkeypatch.chdir(tmp_path)
    lines = predicted("model", files)
    right = [classes.index(line["class"]) == label for line, label in zip(lines, test.labels, strict=True)]
    assert np.mean(right) == pytest.approx(measured.metrics["test_accuracy"])
    assert all(1 / len(classes) <= float(line["probability"]) <= 1 for line in lines)


@pytest.mark.parametrize("row", [IMAGES, TEXTS])
def test_files_with_labels_get_the_scores_that_were_measured(here: Path, tmp_path: Path, row: str) -> None:
    """Recalls and the confusion matrix stay in the laboratory: the card has scores over all classes alone."""
    (measured, *_) = records.read_evaluation(row).trainings
    assert measured.scores is not None
    card = Path(f"out/{row}/README.md").read_text()
    assert "hidden []" not in card
    assert measured.scores.words in card
    assert not any(said in card for said in ("recall", "confusion", "Recall", "Confusion"))
    if row == IMAGES:
        test = prepared.load("mine").splits["test"]
        np.savez(tmp_path / "new.npz", pictures=np.array(test.inputs), labels=np.array(test.labels))
        said = run(f"predict out/{row} {tmp_path}/new.npz --out {tmp_path}/found.csv")
        assert f"accuracy {100 * measured.metrics['test_accuracy']:.2f} % of {len(test):,} inputs" in said
        assert measured.scores.words in said
        assert f"0: recall {100 * (measured.scores.recall[0] or 0):.1f} %" in said
    else:
        (tmp_path / "new.csv").write_text("body,mood\na fine day,good\nan awful night,unknown\na day,\n")
        said = run(f"predict out/{row} {tmp_path}/new.csv --out {tmp_path}/found.csv")
        assert "of 1 inputs whose class is in their file" in said
        assert "1 inputs are left out of the scores: their labels are no classes: 'unknown' 1" in said
    evaluated = run(f"evaluate {row}")
    assert f"epsilon = 8, seed 0: {measured.scores.words}" in evaluated


def test_a_network_that_learned_nothing_is_called_so_everywhere(tmp_path: Path) -> None:
    with laboratory(tmp_path):
        new_data(300)
        new_row("poor --data mine --model logistic --method dpsgd --epsilon 3 --learning-rate 1e-9")
        said = {stage: run(f"{stage} poor") for stage in ("train", "evaluate")}
        assert "poor: accounted, reports/ledgers/poor.json" in run("compare poor poor")  # which needs it
        assert "accounted" not in run("compare poor poor")
        said["export"] = run("export poor out/poor")
        run("report")
        said |= {page: Path(page).read_text() for page in ("reports/index.html", "reports/rows/poor.html")}
        said["card"] = Path("out/poor/README.md").read_text()
        assert [place for place, text in said.items() if "no better than guessing" not in text] == []


def test_a_folder_of_images_is_classified_and_its_classes_are_labels(here: Path, tmp_path: Path) -> None:
    pixels = stripes(4)[0]
    for name, image in zip(("0/a.png", "0/.b.png", "1/c.png", "other/d.png"), pixels, strict=True):
        (tmp_path / "new" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.squeeze()).save(tmp_path / "new" / name)
    said = run(f"predict out/{IMAGES} {tmp_path}/new --out {tmp_path}/found.csv")
    assert "3 predictions" in said
    assert "of 2 inputs whose class is in their file" in said
    assert "found.csv: 1 prediction\n" in run(
        f"predict out/{IMAGES} {tmp_path}/new/1/c.png --out {tmp_path}/found.csv"
    )


def test_an_input_that_cannot_be_classified_is_named_and_nothing_is_written(
    here: Path, tmp_path: Path
) -> None:
    (tmp_path / "new/0").mkdir(parents=True)
    Image.fromarray(stripes(1)[0][0].squeeze()).save(tmp_path / "new/0/a.png")
    (tmp_path / "new/0/b.png").write_bytes(b"\x89PNG no more")
    found = tmp_path / "found.csv"
    assert "new/0/b.png: not an image" in refused(f"predict out/{IMAGES} {tmp_path}/new --out {found}")
    (tmp_path / "new.csv").write_text('body,mood\na fine day,good\n"",bad\nan awful night,bad\n')
    for row in (TEXTS, VECTORS):
        said = refused(f"predict out/{row} {tmp_path}/new.csv --out {found}")
        assert "new.csv: row 3: no body" in said
    assert not found.exists()


def test_git_ignores_predictions(here: Path, tmp_path: Path) -> None:
    """They may have columns of private lines."""
    elsewhere = tmp_path / "elsewhere"
    for folder in (elsewhere, here):
        run_git = partial(subprocess.run, cwd=folder, check=True, capture_output=True, text=True)
        folder.mkdir(exist_ok=True)
        run_git(["git", "init", "--quiet"])
    try:
        for name in ("arrived.npz", "arrived/new.npz", "public.npz"):
            (here / name).parent.mkdir(exist_ok=True)
            shutil.copy("mine.npz", name)
        run_git(["git", "add", "--force", "public.npz"])
        run(f"predict out/{IMAGES} arrived.npz public.npz arrived/new.npz --out predictions.csv")
        status = run_git(["git", "status", "--porcelain", "--untracked-files=all"]).stdout
        assert "predictions.csv" not in status
        assert "arrived" not in status
        assert "/public.npz" not in (here / ".gitignore").read_text().splitlines()
        said = refused(f"predict out/{IMAGES} mine.npz --out {elsewhere}/found.csv")
        assert "git doesn't ignore it; allowed: a file in this folder or outside checkouts" in said
    finally:
        shutil.rmtree(here / ".git")


@contextmanager
def restored(*paths: Path) -> Iterator[None]:
    """Have these files again afterwards as they are now."""
    kept = {path: path.read_bytes() for path in paths}
    try:
        yield
    finally:
        for path, content in kept.items():
            path.write_bytes(content)


@pytest.mark.parametrize("part", ["auc", "recall", "confusion"])
def test_measuring_again_notices_forged_scores(here: Path, part: str) -> None:
    path = records.evaluation_path(TEXTS)
    content, *others = map(json.loads, path.read_text().splitlines())
    scores = content["scores"]
    if part == "auc":
        scores["auc"] -= 0.01
    elif part == "recall":
        scores["recall"][1] -= 0.01
    else:
        scores["confusion"][0][0] += 1
    with restored(path):
        path.write_text("".join(f"{json.dumps(line)}\n" for line in (content, *others)))
        assert re.search(f"{part}.* is .*, and its weights reach", refused(f"evaluate {TEXTS} --again"))
    assert "accuracies are as recorded" in run(f"evaluate {TEXTS} --again")


def test_the_statement_has_the_ledgers_numbers(here: Path) -> None:
    (ledger, *_) = (entry.ledger for entry in records.read_ledgers(IMAGES).entries)
    told = json.loads(Path(f"out/{IMAGES}/config.json").read_text())["privacy"]
    assert ledger.epsilon_upper is not None
    assert ledger.accountant is not None
    assert "dp-accounting 0." in ledger.accountant
    for name, value in {
        "epsilon": ledger.epsilon_upper,
        "delta": ledger.delta,
        "accountant": ledger.accountant,
        "claimed": ledger.claimed,
        "at_least": ledger.epsilon_lower,
        "noise_multiplier": ledger.noise_multiplier,
        "sampling_rate": ledger.sampling_rate,
        "steps": ledger.steps,
        "unit": "one training example",
        "neighbouring": "add or remove one",
        "audited": None,
    }.items():
        assert told[name] == value, name
    for use in not_covered(ledger, (), records.read_ledgers(IMAGES).composition):
        part = "not_covered_of_records" if use.key in OF_RECORDS else "not_covered"
        assert use.words in told[part]
    assert any("float32 rounding" in use for use in told["not_covered"])
    card = Path(f"out/{IMAGES}/README.md").read_text()
    for said in (
        *(sentences.bound(ledger), ledger.accountant, f"| steps | {ledger.steps} |", "add or remove one"),
        *(
            sentences.downwards(ledger.epsilon_lower or 0),
            *told["not_covered"],
            *told["not_covered_of_records"],
            *told["assumptions"],
            "Poisson",
        ),
        sentences.composition(records.read_ledgers(IMAGES).composition),  # type: ignore[arg-type]
    ):
        assert said in card


def test_the_statement_separates_the_folder_from_the_records(here: Path) -> None:
    told = json.loads(Path(f"out/{IMAGES}/privacy-statement.json").read_text())
    assert told == json.loads(Path(f"out/{IMAGES}/config.json").read_text())["privacy"]
    assert told["weights"] == digest_file(Path(f"out/{IMAGES}/model.safetensors"))
    # curves, digests and validation accuracies stay in the laboratory
    assert not any("training history" in use or "digests" in use for use in told["not_covered"])
    assert (
        sum("training history: losses" in use or "digests" in use for use in told["not_covered_of_records"])
        == 2
    )
    card, page = (
        Path(f"out/{IMAGES}/{name}").read_text() for name in ("README.md", "privacy-statement.html")
    )
    assert "validation examples" not in card.partition("## Accuracy")[2].partition("## Privacy")[0]
    plain = card.partition("### In plain words")[2].partition("### For engineers")[0]
    for words in (
        told["attack_risk"],
        "one training example",
        "| Data-protection officer |",
        told["weights"],
    ):
        assert words in plain
    assert "the training history" not in plain
    for text in (told["attack_risk"], "<td>Data-protection officer</td>", told["accountant"]):
        assert text in page
    assert not {"<script", "http:", "https:"} & set(page.split())


def test_examples_of_other_own_data_are_no_public_ones_unsaid(here: Path) -> None:
    told = json.loads(Path(f"out/{IMAGES}/privacy-statement.json").read_text())
    (said,) = told["declared_public"]
    assert said.startswith("the public split: 4 examples of the own data 'also-known', taken as public")
    assert any(said in use for use in told["not_covered"])


def test_a_ledger_from_before_another_training_is_not_exported(here: Path) -> None:
    """The statement would lack what all trainings together spend."""
    path, ledgers = records.run_path(IMAGES), records.ledger_path(IMAGES)
    run_here, spent = path.read_text(), json.loads(ledgers.read_bytes())
    first = json.loads(run_here.splitlines()[0])
    of_first = {name: first[name] for name in ("spending", "steps", "delta")}
    gone = {"schema_version": 4, "row": IMAGES, "trainings": 1, "spent": of_first}
    with restored(path, ledgers):
        for content in (f"{run_here}{json.dumps(gone)}\n", run_here):
            path.write_text(content)
            if content is run_here:
                spent["entries"][0]["seeds"] = spent["entries"][0]["seeds"][:1]
                ledgers.write_text(json.dumps(spent))
            told = refused(f"export {IMAGES} x")
            assert told.startswith(f"reports/ledgers/{IMAGES}.json: ")
            assert "account for it" in told


def test_attacks_are_told_with_what_they_assume(here: Path) -> None:
    said = run(f"audit {IMAGES}")
    assert "values that rounded noise can take (grid noise): ε ≥ " in said
    assert "float32" not in said  # whose arithmetic didn't run
    run(f"export {IMAGES} out/audited")
    attacks = [attack for attack in records.read_audit(IMAGES).attacks if attack.whole]
    told = json.loads(Path("out/audited/config.json").read_text())["privacy"]
    assert told["audited"] == max(attack.epsilon for attack in attacks if attack.attack != "floating_point")
    observed = "a thousand canaries in one run; the attacker sees every step of a separate run with the whole"
    assert any(observed in audit for audit in told["audits"])
    assert any("one release" in audit for audit in told["audits"])


def test_what_trainings_without_secret_noise_show_of_the_examples_stays_inside(here: Path) -> None:
    run(f"audit {IMAGES} --model")
    run(f"export {IMAGES} out/attacked")
    told = json.loads(Path("out/attacked/config.json").read_text())["privacy"]
    assert not any("final model" in said for said in (*told["audits"], *told["not_covered"]))
    assert any("final models" in use for use in told["not_covered_of_records"])


def test_the_card_has_metadata_as_hugging_face_reads_them(here: Path) -> None:
    _, head, body = Path(f"out/{IMAGES}/README.md").read_text().split("---\n", 2)
    about = YAML(typ="safe").load(head)
    assert (about["pipeline_tag"], about["library_name"]) == ("image-classification", "dprepro")
    (model,) = about["model-index"]
    (result,) = model["results"]
    measured, _ = records.read_evaluation(IMAGES).trainings
    assert result["metrics"][0]["value"] == measured.metrics["test_accuracy"]
    assert result["dataset"] == {"name": "own data 'mine'", "type": "mine", "split": "test"}
    assert f"{100 * measured.metrics['test_accuracy']:.2f} % of 100 test examples" in body
    assert "(n = 2)" not in body  # the other seed's result is outside the epsilon of this one
    assert "learning rate 1" in body
    assert "own data 'mine'" in body
    words_of = Path(f"out/{TEXTS}/README.md").read_text()
    assert "text-classification" in words_of
    assert "the vocabulary: its words are ranked by their counts in the private training texts" in words_of


@pytest.mark.parametrize(
    ("name", "place"),
    [("model.safetensors", 0.3), ("vocabulary.txt", 0.999), ("config.json", 0.0), ("config.json", 0.3)],
)
def test_damage_and_a_missing_part_are_noticed(here: Path, tmp_path: Path, name: str, place: float) -> None:
    shutil.copytree(f"out/{TEXTS}", tmp_path / "model")
    path = tmp_path / "model" / name
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    said = refused(f"predict {tmp_path}/model texts.csv")
    assert f"{name}: " in said
    assert "is not what" in said
    path.unlink()
    assert f"{name}: can't be read: No such file" in refused(f"predict {tmp_path}/model texts.csv")


def changed(folder: Path, part: str, value: Any) -> None:
    """The folder's config with another part, or fields of it, and the digest that goes with them."""
    path = folder / "config.json"
    told = json.loads(path.read_text())
    told[part] = told[part] | value if isinstance(value, dict) else value
    del told["digest"]
    path.write_text(json.dumps(told | {"digest": digest_json(told)}))


@pytest.mark.parametrize(
    ("row", "part", "value", "says"),
    [
        (IMAGES, "architecture", {"method": "gone"}, "no method 'gone'; allowed:"),
        (IMAGES, "architecture", {"model": {"name": "gone"}}, "no model 'gone'; allowed:"),
        (IMAGES, "architecture", {"model": {"name": "lenet_300_100"}}, OTHERWISE),
        (IMAGES, "architecture", {"model": {"name": "lenet5", "normalization": "layer"}}, OTHERWISE),
        (IMAGES, "architecture", {"settings": {"batch": 0}}, "settings: not those of dpsgd"),
        (IMAGES, "probe", [[0.5, 0.5], [0.5]], OTHERWISE),
        (IMAGES, "architecture", {"classes": ["0"]}, OTHERWISE),
        (IMAGES, "architecture", {"shape": [1, 100_000, 100_000]}, OTHERWISE),
        (VECTORS, "preparation", {"vectors": None}, "config.json: files: lacks vocabulary.txt"),
        # each text would take memory for all tokens
        (TEXTS, "preparation", {"tokens": 10**12}, "tokens: 1000000000000: not the length of the network's"),
    ],
)
def test_what_this_installation_computes_otherwise_is_refused(
    here: Path, tmp_path: Path, row: str, part: str, value: Any, says: str
) -> None:
    shutil.copytree(f"out/{row}", tmp_path / "model")
    changed(tmp_path / "model", part, value)
    assert says in refused(f"predict {tmp_path}/model {'texts.csv' if row == TEXTS else 'mine.npz'}")


def test_a_folder_of_somebody_else_is_read_within_bounds(here: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "vocabulary.txt"):
        folder = shutil.copytree(f"out/{TEXTS}", tmp_path / name)
        path = folder / name
        path.unlink()
        os.mkfifo(path)  # would be waited for
        assert f"{path}: no regular file; allowed: files on a disk" in refused(f"predict {folder} texts.csv")
        path.unlink()
        path.symlink_to("/dev/zero")  # would be read for ever
        assert f"{path}: no regular file; allowed: files on a disk" in refused(f"predict {folder} texts.csv")
        path.unlink()
        with path.open("wb") as file:
            file.truncate(8 << 30)  # takes no room on the disk
        assert f"{path}: " in (said := refused(f"predict {folder} texts.csv"))
        assert "larger than" in said


def test_of_word_vectors_no_vocabulary_is_handed_on(here: Path) -> None:
    assert Path(f"out/{TEXTS}/vocabulary.txt").exists()
    assert not Path(f"out/{VECTORS}/vocabulary.txt").exists()
    for row, told in ((TEXTS, True), (VECTORS, False)):
        assert ("vocabulary.txt has words of" in run(f"export {row} again/{row}")) is told
        assert "a CSV of texts" in Path(f"out/{row}/README.md").read_text()


def test_files_that_are_no_inputs_are_a_line_each(here: Path) -> None:
    Image.fromarray(stripes(1)[0][0][:20]).save("low.png")
    Image.new("RGB", (28, 28), (9, 99, 0)).save("green.png")
    np.savez("colour.npz", pictures=np.zeros((2, 3, 28, 28), np.uint8))
    np.savez("unnamed.npz", inputs=stripes(2)[0])
    Path("broken.png").write_bytes(b"\x89PNG no more")
    for file, says in {
        "low.png": "20x28 pixels instead of 28x28",
        "green.png": "is in colour; allowed: grey",
        "colour.npz": "'pictures' has examples of 3x28x28; the network takes 1x28x28",
        "unnamed.npz": "no array 'pictures'; there are: 'inputs'",
        "broken.png": "not an image of PNG",
        "params.yaml": "of unknown type; the network takes images; allowed: .jpg",
        "texts.csv": "of unknown type; the network takes images",
        "absent.png": "missing",
        "out": "is a folder; allowed: files of type",
    }.items():
        assert f"{file}: {says}" in refused(f"predict out/{IMAGES} mine.npz {file} --out no.csv")
    assert not Path("no.csv").exists()
    Path("other.csv").write_text("said\nhello\n")
    assert "other.csv: no column 'body'" in refused(f"predict out/{TEXTS} other.csv")
    for row in (TEXTS, VECTORS):
        assert "mine.npz: of unknown type; the network takes texts" in refused(f"predict out/{row} mine.npz")


def test_a_laboratory_brings_its_models_whatever_else_it_declares(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine/models").mkdir(parents=True)
    (tmp_path / "mine/models/known.py").touch()
    Path("params.yaml").write_text("code: [mine]\nrows: 5\n")
    with forgetting():
        run(f"predict {here}/out/{IMAGES} {here}/mine.npz --out found.csv")
        assert "known" in extensions.extensions("models")
    for text, says in (
        ("code: [none]", "no package 'none'"),
        ("code: 5", "params.yaml: code: 5"),
        ("[", "not YAML"),
    ):
        Path("params.yaml").write_text(text)
        assert says in refused(f"predict {here}/out/{IMAGES} {here}/mine.npz")


def test_an_export_again_passes_over_no_other_file(here: Path) -> None:
    folder = f"again/{IMAGES}"
    run(f"export {IMAGES} {folder}")
    run(f"export {IMAGES} {folder}")
    for name in ("privacy-statement.html", "privacy-statement.json", "README.md"):
        with restored(file := here / folder / name):
            file.write_text("epsilon 0.1")
            assert f"allowed: a new folder ({name} is another)" in refused(f"export {IMAGES} {folder}")
            file.unlink()
            assert f"allowed: a new folder ({name} is another)" in refused(f"export {IMAGES} {folder}")


def test_an_edited_ledger_is_not_exported(here: Path) -> None:
    path = here / records.ledger_path(IMAGES)
    with restored(path):
        ledgers = json.loads(path.read_text())
        ledgers["entries"][0]["ledger"]["epsilon_upper"] = 1.0
        path.write_text(json.dumps(ledgers))
        assert "epsilon_upper is not what is computed" in refused(f"export {IMAGES} forged")
    assert not (here / "forged").exists()


def test_rows_that_cannot_be_exported_are_a_line_and_nothing_is_written(here: Path) -> None:
    run("new row untrained --data mine --model lenet5 --method dpsgd --epsilon 1")
    for line, says in {
        "untrained x": "reports/trainings/untrained.jsonl: not there; run `dprepro train untrained` first",
        "nobody x": "no row 'nobody'",
        f"{IMAGES} x --seed 7": "--seed 7: not trained; allowed: 0, 1",
        f"{IMAGES} x --level epsilon=1": "not trained; allowed: epsilon=8",
        f"{IMAGES} data": "data: is there already; allowed: a new folder",
    }.items():
        assert says in refused(f"export {line}")
    network = f"out/{IMAGES}"
    (here / "folder.csv").mkdir()
    assert (
        refused(f"predict {network} mine.npz --out folder.csv") == "folder.csv: is a folder; allowed: a file"
    )
    assert "mine.npz: is one of the files" in refused(f"predict {network} mine.npz --out out/../mine.npz")
    path, measured = weights_path(IMAGES, "epsilon=8", 1), records.evaluation_path(IMAGES)
    with restored(measured):
        measured.unlink()
        said = refused(f"export {IMAGES} x")
        assert f"not measured or not accounted for; run `dprepro evaluate {IMAGES}`" in said
    with restored(path):
        path.write_bytes(b"0" + path.read_bytes()[1:])
        assert "is not what training left" in refused(f"export {IMAGES} x --seed 1")
        path.unlink()
        assert "1 of 2 trainings are not here (epsilon=8 seed 1)" in refused(f"export {IMAGES} x --seed 1")
    assert not Path("x").exists()
    assert not [path for path in Path().iterdir() if ".x." in path.name]


def test_what_computes_otherwise_without_the_data_is_no_export(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Davody et al.'s Algorithm 1, which joins each example with the public images (`test_networks`)."""
    monkeypatch.setattr(exporting, "same", lambda *_: False)
    assert "its predictions need the data it learned from" in refused(f"export {IMAGES} x")


def test_images_are_scaled_as_the_training_data_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(NOTHING)
    for number in range(60):
        side = 30 + number % 7
        path = Path("photos", "ab"[number % 2], f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (side, 34), (number, 200 * (number % 2), 9)).save(path)
    run("new data photos --images photos --size 32")
    run("new row row --data photos --model convnet --method noisy_weights --sigma 0.1 --epochs 1")
    train("row")
    run("export row model")
    exported = exporting.folder_predictor(Path("model"))
    takes = exported.architecture
    stored = np.concatenate([split.inputs for split in prepared.load("photos").splits.values()])
    assert stored.shape[1:] == takes.shape == (3, 32, 32)
    for file in (Path("photos/a/0.png"), Path("photos/b/1.png")):
        (read,) = read_inputs(file, takes.shape, takes.floats, exported.preparation, {}).inputs
        assert (stored == np.asarray(read)).all((1, 2, 3)).sum() == 1
        assert exported.predict(file).outputs.shape == (1, 2)
    assert params.load().own["photos"].resize  # type: ignore[attr-defined]
    # arrays are not scaled
    np.savez("small.npz", inputs=np.zeros((1, 3, 30, 34), np.uint8))
    assert "has examples of 3x30x34; the network takes 3x32x32" in refused("predict model small.npz")
