"""`dprepro new`: entries that fit, in a file whose every other line stays."""

import math
import shutil
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dprepro.errors import Notice, UserError
from dprepro.pipeline import params
from dprepro.pipeline.data import prepared
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.params.adding import Adding
from tests import laboratory
from tests.refusal import refusal_of

ROOT = Path(__file__).parents[2]
PARAMS = """\
# What this file is.
raw: {}
own: {}  # of one's own

data: {}   # splits
# Rows have a comment of theirs.
rows:

    # and an indentation
    first: &first
        {paper: mine, table: t1, label: x, data: mine, model: {name: lenet5}, method: dpsgd, seeds: 1,
         reproducible: false, settings: {batch: 8, epochs: 1, learning_rate: 1.0, delta: 0.001},
         levels: [{epsilon: 3}]}

# Nothing yet.
accounts: {}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    images = np.random.default_rng(0).integers(0, 256, (120, 28, 28), dtype=np.uint8)
    np.savez("mine.npz", inputs=images, labels=np.arange(120) % 4)
    Path("a.parquet").touch()
    np.savez("same.npz", inputs=images, labels=np.zeros(120, int))
    (tmp_path / "params.yaml").write_text(PARAMS.replace("first: &first", "first: &first  # kept"))
    return tmp_path


run, refused = partial(laboratory.run, "new"), partial(laboratory.refused, "new")


def row(name: str, *options: str) -> list[str]:
    return ["row", name, "--data", "mine", "--model", "lenet5", *options]


def test_data_and_a_row_of_them(project: Path) -> None:
    before = (project / "params.yaml").read_text().splitlines()
    said = run("data", "mine", "--npz", "mine.npz")
    assert said.splitlines()[0].endswith("data/prepared/mine: train 90, validation 10, test 20, public 0")
    assert "none is public: methods that need public examples say so" in said
    assert "`dvc repro evaluate@second ledger@second`" in run(
        *row("second", "--method", "dpsgd", "--epsilon", "3")
    )
    after = (project / "params.yaml").read_text().splitlines()
    lost = [line for line in before if line not in after]
    assert lost == ["own: {}  # of one's own", "data: {}   # splits"]
    assert after[after.index("own:  # of one's own") + 1] == "  mine:"
    # where the section's own entries end, with their indentation
    assert after.index("    second:") < after.index("# Nothing yet.")
    settings = params.load()
    assert settings.own["mine"].classes == ["0", "1", "2", "3"]
    configured = settings.rows["second"].resolved[0]
    assert configured.accountant == "pld"
    assert (configured.epsilon, configured.batch, configured.delta, configured.clip) == (3.0, 32, 0.001, 1.0)
    assert settings.rows["second"].reproducible is False
    assert prepared.load("mine").classes == 4


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["data", "mine"], "--npz, --images, --texts, --table; needed: one of them"),
        (["data", "mine", "--npz", "a.parquet"], "a.parquet: a table, not as --npz takes it; allowed with"),
        (
            ["data", "mine", "--npz", "mine.npz", "--size", "8"],
            "--size: 8; allowed with --images",
        ),
        (["data", "mine", "--npz", "same.npz"], "same.npz: examples of one class alone"),
        (["data", "My", "--npz", "mine.npz"], "'My': no key; allowed: small letters and digits"),
        (["data", "mine", "--npz", "none.npz"], "none.npz: missing"),
    ],
)
def test_data_that_are_refused(project: Path, arguments: list[str], line: str) -> None:
    assert line in refused(*arguments)


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ("test: 121", "mine.npz: 120 examples; 121 for test and 0 public ones leave too few to train on"),
        ("public: {count: 100}", "120 examples; 20 for test and 100 public ones leave too few to train on"),
        ("range: [0, 1]", "own.mine.range: unknown key; allowed: kind, of"),  # of images
        ("path: x.npz", "schema.yaml: path: the command finds it by itself; allowed: other keys"),
        ("- test", "schema.yaml: list; allowed: keys with their values"),
        ("network: {architecture: resnet18}", "own.mine.network.weights: missing"),
    ],
)
def test_schemas_that_are_refused(project: Path, schema: str, line: str) -> None:
    Path("schema.yaml").write_text(schema)
    with pytest.raises(UserError) as told:
        laboratory.run("new", "data", "mine", "--npz", "mine.npz", "--schema", "schema.yaml")
    assert line in str(told.value)


def test_rows_that_are_refused(project: Path) -> None:
    run("data", "mine", "--npz", "mine.npz")
    assert "own.kmnist: the catalogue has data of that name" in refused("data", "kmnist", "--npz", "mine.npz")
    assert "rows.first: is there already" in refused(*row("first", "--method", "dpsgd", "--epsilon", "3"))
    assert "--method sgd: not known; allowed: 'adlm'," in refused(*row("a", "--method", "sgd"))
    assert refused("row", "a") == "--data missing; allowed: 'mine'"
    epsilon = ("--method", "dpsgd", "--epsilon", "3")
    assert "--model x, y: [: not known; allowed:" in refused(
        "row", "a", "--data", "mine", "--model", "x, y: [", *epsilon
    )
    Path("none.yaml").write_text("test: 5")
    assert "network.weights: missing" in refused(*row("a", *epsilon, "--network", "none.yaml"))
    assert "method 'dpsgd' needs --epsilon" in refused(*row("a", "--method", "dpsgd"))
    assert "method 'dpsgd' has no sigma" in refused(*row("a", "--method", "dpsgd", "--sigma", "1"))
    assert "rows.a.settings.batch: 99 is larger" in refused(
        *row("a", "--method", "dpsgd", "--epsilon", "3", "--batch", "99")
    )
    assert "epsilon" in refused(*row("a", "--method", "dpsgd", "--epsilon", "0"))
    line = refused("row", "a", "--data", "other", "--model", "lenet5", "--method", "dpsgd", "--epsilon", "3")
    assert line == "--data other: not known; allowed: 'mine'"


@pytest.mark.parametrize("method", sorted(method_settings().keys() - {"adlm"}))  # which needs relevances
def test_every_method_has_something_to_begin_with(project: Path, method: str) -> None:
    Path("schema.yaml").write_text("public: {count: 8}")
    run("data", "mine", "--npz", "mine.npz", "--schema", "schema.yaml")
    axis = method_settings()[method].axis
    told = "epsilon" if axis == "epsilon" else "sigma"
    run(*row("begun", "--method", method, f"--{told}", "2"))
    assert len(params.load().rows["begun"].resolved) == 1


def test_the_same_command_again_completes_and_adds_nothing(project: Path) -> None:
    """As after a kill: whatever of it had been written by then."""
    data, second = ("data", "mine", "--npz", "mine.npz"), row("second", "--method", "dpsgd", "--epsilon", "3")
    said = run(*data), run(*second)
    whole = (project / "params.yaml").read_bytes()
    shutil.rmtree(project / "data")
    assert (run(*data), run(*second)) == said
    assert (project / "params.yaml").read_bytes() == whole
    assert prepared.load("mine").classes == 4
    other = refused(*row("second", "--method", "dpsgd", "--epsilon", "4"))
    assert other == ("params.yaml: rows.second: is there already, with other content; allowed: another name")


def test_data_without_trainings_are_replaced(project: Path) -> None:
    before = Path("params.yaml").read_text().splitlines()
    run("data", "mine", "--npz", "mine.npz")
    run(*row("second", "--method", "dpsgd", "--epsilon", "3"))
    again = ("data", "mine", "--npz", "mine.npz", "--schema", "schema.yaml")
    Path("schema.yaml").write_text("test: 30")
    assert "mine: declared again in params.yaml" in run(*again)
    assert (params.load().own["mine"].test, prepared.load("mine").manifest["counts"]["test"]) == (30, 30)
    after = Path("params.yaml").read_text().splitlines()
    assert [line for line in after if line.startswith("    path:")] == ['    path: "mine.npz"']
    lost = [line for line in before if line not in after]
    assert lost == ["own: {}  # of one's own", "data: {}   # splits"]
    # batches of 32 are too large for what would be left
    Path("schema.yaml").write_text("test: 100")
    assert "rows.second.settings.batch: 32" in refused(*again)
    assert prepared.load("mine").manifest["counts"]["test"] == 30


REMAINS = {
    "reports/trainings/second.jsonl": "", ".dprepro/checkpoints/second/x.pt": "",
    "reports/audits/models/second.json": "", ".dprepro/checkpoints/search-tried/0123456789ab/x.pt": "",
}  # fmt: skip


@pytest.mark.parametrize("left", REMAINS)
def test_what_was_trained_is_neither_replaced_nor_removed(project: Path, left: str) -> None:
    run("data", "mine", "--npz", "mine.npz")
    run(*row("second", "--method", "dpsgd", "--epsilon", "3"))
    with Path("params.yaml").open("a") as file:
        file.write("\nsearches:\n  tried: {row: second, grid: {clip: [1, 2]}}\n")
    Path(left).parent.mkdir(parents=True)
    Path(left).write_text(REMAINS[left])
    trained = f"rows.second: was trained: {left.removesuffix('/x.pt')}; allowed"
    Path("schema.yaml").write_text("test: 30")
    assert trained in refused("data", "mine", "--npz", "mine.npz", "--schema", "schema.yaml")
    assert trained in laboratory.refused("remove", "data", "mine")
    assert trained in laboratory.refused("remove", "row", "second")


def test_entries_are_removed_with_their_copies_alone(project: Path) -> None:
    declared = Path("params.yaml")
    before = PARAMS.replace("  first: &first", "  # of the first\n    first: &first").replace(
        "levels: [{epsilon: 3}]}\n", "levels: [{epsilon: 3}]}\n    # of the second\n"
    )
    declared.write_text(before)
    Path("elsewhere").mkdir()
    shutil.move("mine.npz", "../theirs.npz")
    run("data", "mine", "--npz", "../theirs.npz")
    run(*row("second", "--method", "dpsgd", "--epsilon", "3"))
    assert "own.mine: rows use it; before: `dprepro remove row first`" in laboratory.refused(
        "remove", "data", "mine"
    )
    laboratory.run("remove", "row", "first")
    assert "    # of the second" in declared.read_text().splitlines()
    assert params.load().rows.keys() == {"second"}
    assert Path("data/own/mine.npz").is_symlink()
    laboratory.run("remove", "row", "second")
    assert "`dvc gc -w`" in laboratory.run("remove", "data", "mine")
    assert params.load().rows == params.load().own == params.load().data == {}
    assert "own: {}  # of one's own" in declared.read_text().splitlines()
    assert [*Path("data").rglob("mine*")] == []
    assert Path("../theirs.npz").is_file()
    run("data", "mine", "--npz", "../theirs.npz")  # a new beginning
    assert "no row 'first'" in laboratory.refused("remove", "row", "first")
    assert "no own data set 'x'; there are: mine" in laboratory.refused("remove", "data", "x")


def test_a_level_is_added_behind_the_others(project: Path) -> None:
    Path("schema.yaml").write_text("public: {count: 8}")
    run("data", "mine", "--npz", "mine.npz", "--schema", "schema.yaml")
    run(*row("second", "--method", "dpsgd", "--epsilon", "3"))
    said = run("level", "second", "--epsilon", "2.5")
    assert said == "second: has the level epsilon=2.5; train it with `dprepro repro second`\n"
    assert "    levels: [{epsilon: 3.0}, {epsilon: 2.5}]  # one entry for each value" in Path(
        "params.yaml"
    ).read_text().replace("      levels", "    levels")
    run("level", "first", "--epsilon", "1.5")
    assert [configured.epsilon for configured in params.load().rows["first"].resolved] == [3, 1.5]
    assert "rows.second: its levels differ in 'epsilon'; needed: --epsilon" in refused(
        "level", "second", "--sigma", "1"
    )
    assert "no row 'other'" in refused("level", "other", "--epsilon", "1")
    assert "epsilon: 'NaN' is not allowed: Input should be a valid number" in refused(
        "level", "first", "--epsilon", "nan"
    )
    run("level", "first", "--epsilon", "inf")
    assert params.load().rows["first"].resolved[-1].epsilon == math.inf
    run(*row("third", "--method", "tan", "--sigma", "2"))
    assert "differ in 'batch'; allowed: rows of epsilon or sigma" in refused("level", "third", "--sigma", "1")


@pytest.mark.parametrize(
    ("model", "epsilon", "ends"),
    [
        ("lenet5", 3, "61,196 weights may be too many for 90 examples at epsilon 3, and learn nothing; "
         "`--model logistic` has fewer"),
        ("logistic", 8, None),
    ],
)  # fmt: skip
def test_a_row_with_more_weights_than_its_examples_teach_is_told(
    project: Path, model: str, epsilon: float, ends: str | None
) -> None:
    run("data", "mine", "--npz", "mine.npz")
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always", Notice)
        options = ("--model", model, "--method", "dpsgd", "--epsilon", f"{epsilon}")
        run("row", "second", "--data", "mine", *options)
    told = [str(each.message) for each in noticed if each.category is Notice]
    assert told == ([] if ends is None else [f"{model}: {ends}"])


def test_a_section_in_one_line_is_not_added_to(project: Path) -> None:
    (project / "params.yaml").write_text("rows: {first: {}}\n")
    adding = Adding()
    adding.entry("rows", "second", "paper: mine")
    with pytest.raises(UserError, match="is laid out so that no entry can be added"):
        adding.checked()


def test_a_section_that_is_missing_is_begun(project: Path) -> None:
    (project / "params.yaml").write_text("raw: {}\ndata: {}\nrows: {}")
    adding = Adding()
    adding.entry("accounts", "a", "paper: mine")
    assert adding.text.endswith("rows: {}\n\naccounts:\n  a:\n    paper: mine\n")


def test_the_projects_own_file_can_be_added_to(project: Path) -> None:
    """All of its comments and anchors stay."""
    before = (ROOT / "params.yaml").read_text()
    (project / "params.yaml").write_text(before)
    shutil.copytree(ROOT / "reports/searches", project / "reports/searches", dirs_exist_ok=True)
    run("data", "mine", "--npz", "mine.npz")
    run(*row("second", "--method", "dpsgd", "--epsilon", "3"))
    after = (project / "params.yaml").read_text().splitlines()
    assert [line for line in before.splitlines() if line not in after] == ["own: {}"]
    theirs, ours = params.load(ROOT / "params.yaml"), params.load()
    assert ours.rows.keys() - theirs.rows.keys() == {"second"}
    assert all(ours.row_digest(name) == theirs.row_digest(name) for name in theirs.rows)


def test_nothing_that_somebody_else_wrote_meanwhile_is_lost(project: Path) -> None:
    adding = Adding()
    run("data", "mine", "--npz", "mine.npz")
    written = Path("params.yaml").read_bytes()
    assert refusal_of(adding.write).endswith("was changed meanwhile; run this again")
    assert Path("params.yaml").read_bytes() == written


def test_lines_end_as_they_did_and_names_may_hold_anything(project: Path) -> None:
    before = Path("params.yaml").read_bytes().replace(b"\n", b"\r\n")
    Path("params.yaml").write_bytes(before)
    names = [f"a\u2028b\x85{chr(0xE000)}\U000e0001 {number}" for number in range(2)]
    lines = (f'text,"{names[number % 2]}"\n' for number in range(60))
    Path("mine.csv").write_text("text,label\n" + "".join(lines))
    run("data", "mine", "--texts", "mine.csv")
    assert params.load().own["mine"].classes == names
    after = Path("params.yaml").read_bytes()
    assert after.count(b"\n") == after.count(b"\r\n") == len(after.splitlines())
    assert set(before.splitlines()) - set(after.splitlines()) == {
        b"own: {}  # of one's own",
        b"data: {}   # splits",
    }


def test_a_small_epsilon_is_one_that_its_accountant_can_tell(project: Path) -> None:
    run("data", "mine", "--npz", "mine.npz")
    run(*row("x", "--method", "dpsgd", "--epsilon", "0.0005"))
    assert params.load().rows["x"].resolved[0].accountant == "rdp"


@pytest.mark.parametrize("text", [b"- a\n", b"raw: {}  # caf\xe9\n"])
def test_a_file_that_nothing_fits_into_is_a_line(project: Path, text: bytes) -> None:
    Path("params.yaml").write_bytes(text)
    assert refused("data", "mine", "--npz", "mine.npz").startswith("params.yaml: ")


@pytest.mark.parametrize(("shape", "kind"), [((120, 28, 0), np.uint8), ((120, 0), np.float32)])
def test_examples_without_values_are_a_line(project: Path, shape: tuple[int, ...], kind: type) -> None:
    np.savez("mine.npz", inputs=np.zeros(shape, kind), labels=np.arange(120) % 4)
    said = refused("data", "mine", "--npz", "mine.npz")
    assert said == f"mine.npz: 'inputs' is of shape {shape}; allowed: one value or more an example"


def test_a_name_that_yaml_reads_as_another_type_stays_a_name(project: Path) -> None:
    name, images = "1e3", np.random.default_rng(1).integers(0, 256, (120, 28, 28), dtype=np.uint8)
    np.savez("same-classes.npz", inputs=images, labels=np.arange(120) % 4)
    run("data", "mine", "--npz", "mine.npz")
    run("data", name, "--npz", "same-classes.npz")
    run("row", name, "--data", name, "--model", "lenet5", "--method", "dpsgd", "--epsilon", "3")
    settings = params.load()
    assert name in settings.own
    assert settings.rows[name].data == name


@pytest.mark.filterwarnings("error:Initializing zero-element tensors")
@pytest.mark.parametrize(("model", "shape"), [("lenet5_tanh", (30, 8)), ("convnet", (4, 4))])
def test_images_too_small_for_a_model_name_others_and_an_option(
    project: Path, model: str, shape: tuple[int, int]
) -> None:
    np.savez("mine.npz", inputs=np.zeros((120, *shape), np.uint8), labels=np.arange(120) % 4)
    run("data", "mine", "--npz", "mine.npz")
    arguments = ["row", "second", "--data", "mine", "--model", model, "--method", "dpsgd", "--epsilon", "3"]
    said = refused(*arguments)
    assert f"can't take images of 1x{shape[0]}x{shape[1]}; allowed: " in said
    assert "lenet_300_100, " in said
    assert said.endswith("; `--size` of `new data --images` scales images")
    assert "second" not in Path("params.yaml").read_text()
