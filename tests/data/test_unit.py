"""People as the unit of privacy: what is kept of each, splits by person, accounting and statement."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from ruamel.yaml import YAML

from dprepro.accountants.bounds import smallest_bound
from dprepro.accountants.records import SampledGaussian
from dprepro.errors import Notice
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.own import texts
from dprepro.pipeline.ledgers.composition import Trainings, composed
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.methods.spending import Sizes
from dprepro.pipeline.params.own import Unit
from tests.laboratory import declare, laboratory, refused, run, train

UNIT = Unit(column="patient", at_most=3)
SCHEMA = (
    'classes: ["no", "yes"]\nunit: {column: patient, at_most: 3}\n'
    "columns:\n  dose: {range: [0, 1]}\n  visit: {range: [0, 1000]}\n"
)
NEW = "new data visits --table ../visits.csv --label ill --group patient"
ROW = "new row mine --data visits --model logistic --method dpsgd --epsilon 3 --epochs 1"


def visits(people: int = 60, most: int = 6) -> pandas.DataFrame:
    """Lines of people, each with 1 to ``most``; each line has a number of its own, 'visit'."""
    names = [f"secret{person}" for person in range(people) for _ in range(1 + person % most)]
    order = np.random.default_rng(0).permutation(len(names))
    ill = np.where(np.arange(len(names)) % 2, "yes", "no")
    dose = np.random.default_rng(1).random(len(names))
    lines = pandas.DataFrame({"patient": np.array(names)[order], "dose": dose, "ill": ill})
    return lines.assign(visit=np.arange(len(names)))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    visits().to_csv(tmp_path / "visits.csv", index=False)
    (tmp_path / "lab").mkdir()
    with laboratory(tmp_path / "lab") as folder:
        (folder / "visits.schema.yaml").write_text(SCHEMA)
        yield folder


def set_setting(params: Any, name: str, value: str) -> None:
    params["rows"]["mine"]["settings"][name] = value


def people_of_splits(data: str, patients: pandas.Series) -> dict[str, list[str]]:
    """People of each split's examples, by the number that each line has."""
    splits = prepared.load(data).splits
    scale = [np.round((split.inputs[:, 1] + 1) * 500).astype(int) for split in splits.values()]
    return {name: patients[numbers].tolist() for name, numbers in zip(splits, scale, strict=True)}


def test_no_person_is_in_two_splits_or_has_more_examples_than_declared(lab: Path) -> None:
    with pytest.warns(Notice, match=r"visits.csv: 60 of 210 lines are left out: a person has at most 3"):
        said = run(f"{NEW} --schema visits.schema.yaml")
    assert "the unit of privacy is a person (patient) with at most 3 examples" in said
    splits = people_of_splits("visits", visits()["patient"])
    assert all(splits[name] for name in ("train", "validation", "test"))
    everyone = [person for people in splits.values() for person in people]
    assert len(set(everyone)) == sum(len(set(people)) for people in splits.values())
    counts = pandas.Series(everyone).value_counts()
    assert counts.max() == 3
    # at most two examples before each of two borders are in no split
    assert counts.sum() >= visits()["patient"].value_counts().clip(upper=3).sum() - 4
    committed = [path for path in lab.rglob("*") if path.is_file() and "data" not in path.parts]
    assert committed
    assert not any(b"secret" in path.read_bytes() for path in committed)
    assert not any(b"secret" in path.read_bytes() for path in (lab / "data/prepared").rglob("*.*"))


def test_what_is_kept_of_a_person_depends_on_no_other_person(tmp_path: Path) -> None:
    lines = visits()
    kept, people = texts.kept(tmp_path / "t.csv", lines, UNIT)
    assert people is not None
    assert len(kept) == len(people) < len(lines)
    for name in ("secret5", "secret17"):
        others = lines[lines["patient"] != name].reset_index(drop=True)
        without, _ = texts.kept(tmp_path / "t.csv", others, UNIT)
        remaining = kept[kept["patient"] != name]
        assert 0 < len(kept) - len(remaining) <= 3  # neighbours differ in at most three examples
        assert without["visit"].tolist() == remaining["visit"].tolist()


def test_spellings_of_a_name_are_one_person(tmp_path: Path) -> None:
    names = ["Zoë", "Zoe\u0308", " zoë", "ZOË", "x"]
    kept, _ = texts.kept(tmp_path / "t.csv", pandas.DataFrame({"patient": names}), UNIT)
    assert kept["patient"].tolist() == [*names[:3], "x"]


@pytest.mark.filterwarnings("ignore:.*left out")
def test_epsilon_is_for_a_person_from_the_declaration_to_the_export(lab: Path) -> None:
    run(f"{NEW} --schema visits.schema.yaml")
    run(ROW)
    train("mine")
    record = json.loads(Path("reports/trainings/mine.jsonl").read_text().splitlines()[-1])
    spending = SampledGaussian.model_validate(record["spending"])
    assert spending.group == 3
    assert 2.98 < smallest_bound(spending, record["steps"], record["delta"]) <= 3
    unit = "one person with at most 3 training examples"
    assert f"proven for {unit}" in run("ledger mine")
    ledger = json.loads(Path("reports/ledgers/mine.json").read_text())["entries"][0]["ledger"]
    assert (ledger["unit"], ledger["claimed_by"]) == (unit, "pld")
    assert 0.98 * ledger["epsilon_upper"] < ledger["epsilon_lower"] <= ledger["epsilon_upper"] <= 3
    assert not [each for each in ledger["accountants"] if each["accountant"].startswith(("prv", "tan"))]
    run("evaluate mine")
    run("verify mine")
    said = run("export mine ../out")
    assert f"differ in {unit} (add or remove one)" in said
    card = Path("../out/README.md").read_text()
    assert f"**Protected unit.** The bounds under 'Guarantee' are for {unit} together." in card
    assert "each person has one name in the column of people" in card
    assert "____" not in card
    assert "secret" not in card
    # a training for a line, on the same people, has no bound for a person
    Path("lines.yaml").write_text(SCHEMA.replace("unit: {column: patient, at_most: 3}\n", ""))
    run("new data lines --table ../visits.csv --label ill --schema lines.yaml")
    run(ROW.replace("row mine --data visits", "row other --data lines"))
    run("train other")
    assert (
        f"for {unit} that is in no public split and in none of their validation splits; no bound is "
        "proven for 1 more training." in run("ledger other")
    )
    # a record with another unit is a contradiction
    declare(lambda params: params["own"]["visits"]["unit"].update(at_most=2))
    assert "noise_multiplier: not what its settings come to" in refused("ledger mine")


@pytest.mark.filterwarnings("ignore:.*left out")
def test_what_has_no_bound_for_a_person_is_refused(lab: Path) -> None:
    np.savez("x.npz", inputs=np.zeros((60, 8, 8), np.uint8), labels=np.arange(60) % 2)
    assert "--group: p; allowed with --texts and --table" in refused("new data x --npz x.npz --group p")
    assert "--group nobody: ../visits.csv: no column 'nobody'" in refused(
        NEW.replace("patient", "nobody").replace("visits --table", "other --table")
    )
    for bad, said in (
        (("at_most: 3", "at_most: 101"), "own.visits.unit.at_most: "),
        (("unit: {column: patient, at_most: 3}", "unit: 5"), "own.visits.unit: "),
        (("unit:", "public: {count: 5}\nunit:"), "5 examples of people whose other examples are private"),
    ):
        Path("bad.yaml").write_text(SCHEMA.replace(*bad))
        assert said in refused(f"{NEW} --schema bad.yaml")
    assert "own.visits.unit.column: " in refused(f"{NEW} --group= --schema visits.schema.yaml")
    run(f"{NEW} --schema visits.schema.yaml")
    for method in ("batch_clipping --sigma 1", "ilm --epsilon 3"):
        line = ROW.replace("dpsgd --epsilon 3", method)
        assert "has no bound for all examples of a person" in refused(line)
    run(ROW)
    declared = Path("params.yaml").read_text()
    for setting, said in (
        ("sampling: allocation", "has no bound for all examples of a person"),
        ("accountant: rdp", "'rdp' has no bound for several examples of a person; allowed: pld"),
    ):
        name, value = setting.split(": ")
        Path("params.yaml").write_text(declared)
        declare(partial(set_setting, name=name, value=value))
        assert said in refused("train mine")
    Path("params.yaml").write_text(declared)
    declare(lambda params: params["data"]["visits"]["public"].update(count=5))
    assert "public.count: 5 examples of people whose other examples are private" in refused("train mine")
    Path("params.yaml").write_text(declared)
    run("new data x --npz x.npz")
    declare(lambda params: params["own"]["x"].update(unit={"column": "p", "at_most": 2}))
    assert "unit: allowed for tables and texts" in refused("prepare x")


@pytest.mark.filterwarnings("ignore:.*left out")
def test_a_column_of_people_is_no_feature_and_has_no_gaps(lab: Path) -> None:
    run(NEW.replace("visits --table", "other --table"))
    template = YAML(typ="safe").load(Path("other.schema.yaml"))
    assert template["unit"] == {"column": "patient", "at_most": 1}
    assert [*template["columns"]] == ["dose", "visit"]
    Path("visits.schema.yaml").write_text(f"{SCHEMA}  patient: {{values: [secret1], other: true}}\n")
    said = refused(f"{NEW} --schema visits.schema.yaml")
    assert "unit.column: 'patient' is a feature or the label; allowed: another column" in said
    Path("visits.schema.yaml").write_text(SCHEMA)
    lines = visits()
    lines.loc[7, "patient"] = " "
    lines.to_csv("../visits.csv", index=False)
    said = refused(f"{NEW} --schema visits.schema.yaml")
    assert "visits.csv: row 9: patient is missing; allowed: the name of a person" in said


@pytest.mark.filterwarnings("ignore:.*left out")
def test_a_person_in_both_parts_of_the_files_is_refused(lab: Path) -> None:
    lines = visits()
    Path("../parts").mkdir()
    for part, there in (("train", lines), ("test", lines[lines["patient"] == "secret11"])):
        there.to_csv(f"../parts/{part}.csv", index=False)
    line = NEW.replace("../visits.csv", "../parts")
    assert "people in both parts: 1; allowed: each person in one part" in refused(
        f"{line} --schema visits.schema.yaml"
    )
    others = lines[lines["patient"] != "secret11"]
    others.to_csv("../parts/train.csv", index=False)
    run(f"{line} --schema visits.schema.yaml")


@pytest.mark.filterwarnings("ignore:.*left out")
def test_texts_have_people_too(lab: Path) -> None:
    lines = visits().rename(columns={"ill": "label"})
    lines["text"] = "dose " + lines["dose"].astype(str)
    lines.to_csv("../texts.csv", index=False)
    Path("two.yaml").write_text("unit: {at_most: 2}\n")
    for schema, most in (("", 1), ("--schema two.yaml", 2)):
        run(f"new data letters --texts ../texts.csv --group patient {schema}")
        splits = prepared.load("letters").splits
        kept = visits()["patient"].value_counts().clip(upper=most).sum()
        assert kept - 2 * (most - 1) <= sum(map(len, splits.values())) <= kept


def test_trainings_of_smaller_units_are_not_composed_with_a_persons() -> None:
    def spent(group: int | None) -> Any:
        one = SampledGaussian(sampling="poisson", noise_multiplier=4.0, examples=300, batch=30, group=group)
        return one, 20, 1e-5

    together = composed(Trainings([spent(3), spent(3)], [spent(None)], [2.0]))
    assert together is not None
    assert (together.unit, together.total, together.left_out) == (
        "one person with at most 3 training examples",
        2,
        2,
    )
    assert together.epsilon > smallest_bound(*spent(3))
    assert composed(Trainings([spent(None)], [], [])).unit == "one training example"


def test_the_claim_of_a_given_noise_is_by_the_only_accountant() -> None:
    settings = method_settings()["tan"].model_validate(
        {"batch": 10, "learning_rate": 1.0, "steps": 5, "sigma": 2.0}
    )
    claims = [settings.guarantee(Sizes(100, group=group), "none").claimed_by for group in (None, 1, 2)]
    assert claims == ["rdp", "rdp", "pld"]
