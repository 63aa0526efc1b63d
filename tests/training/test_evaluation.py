"""What is measured again and what is kept; what a replica's ledger says besides epsilon."""

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.identity.versions import MEASURING
from pipeline.ledgers.ledger import ledger_of
from pipeline.ledgers.spending import spent_so_far
from pipeline.methods.base import Execution
from pipeline.methods.laplace.settings import AdlmSettings, IlmSettings
from pipeline.methods.settings import MethodSettings
from pipeline.models.model import Model
from pipeline.params import Settings, parse
from pipeline.privacy.laplace import Laplace, Releases
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.privacy.statements import statement
from pipeline.reporting.vocabulary import words
from pipeline.results import records
from pipeline.results.schema import Trained
from pipeline.results.weights import weights_path
from pipeline.training import evaluation, loop, side_by_side
from pipeline.training import rows as training
from pipeline.training.not_covered import data_uses
from tests.conftest import dpsgd
from tests.there import there

OWN = statement("curves")
SEEDED = statement("seeded")
SPENDING = SampledGaussian(sampling="fixed", noise_multiplier=2.0, examples=200, batch=20)


def trained(**changes: Any) -> Trained:
    values = {
        "level": "sigma=1",
        "seed": 0,
        "settings": {},
        "steps": 10,
        "weights": None,
        "seconds": 1,
        "started": 0,
        "ended": 1,
        "origin": 0,
    }
    mechanism = {
        "spending": SPENDING,
        "delta": 1e-5,
        "claimed_by": "clt",
        "broken": (),
        "not_covered": (OWN,),
    }
    return Trained.model_validate(values | mechanism | changes)


# -- measuring ---------------------------------------------------------------------------------------


def declared(seeds: int = 2) -> Settings:
    row = {
        "paper": "davody2020",
        "table": "t5",
        "label": "LeNet-5",
        "data": "tiny",
        "model": {"name": "lenet5"},
        "method": "dpsgd",
        "seeds": seeds,
        "reproducible": True,
        "settings": {"batch": 20, "epochs": 0.2, "learning_rate": 0.5, "delta": 1e-3},
        "levels": [{"epsilon": 3}],
    }
    data = {"raw": "mnist", "train": 200, "validation": 40, "public": {"raw": "kmnist", "count": 8}}
    return parse({"raw": {"mnist": {}, "kmnist": {}}, "data": {"tiny": data}, "rows": {"row": row}})


@pytest.fixture
def measured(tiny: Prepared, cpu: Execution, tmp_path: Path) -> Path:
    """A folder with a row trained and measured."""
    training.train("row", declared(), tiny, cpu, lambda progress: None, 1e9, tmp_path)
    evaluation.evaluate("row", declared(), tiny, cpu, tmp_path)
    return tmp_path


def measure(root: Path, data: Prepared, how: Execution, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Evaluate the row; the seeds that were measured for it."""
    seeds: list[int] = []
    real = evaluation.measure

    def noted(members: list[loop.Replica], *arguments: Any) -> Iterator[tuple[int, dict[str, float]]]:
        seeds.extend(member.seed for member in members)
        return real(members, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "measure", noted)
        evaluation.evaluate("row", declared(), data, how, root)
    return seeds


def test_what_was_measured_is_kept_without_its_weights(
    measured: Path, tiny: Prepared, cpu: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = records.evaluation_path("row", measured)
    before = path.read_bytes()
    for weights in (measured / "runs/row").iterdir():
        weights.unlink()
    assert measure(measured, tiny, cpu, monkeypatch) == []
    assert path.read_bytes() == before


def test_what_nobody_measured_and_what_other_weights_or_versions_made_is_measured(
    measured: Path, tiny: Prepared, cpu: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = there(records.read_evaluation("row", measured))
    assert {one.measured_by for one in found.replicas} == {MEASURING}
    first, second = found.replicas
    for changed in (
        (first,),
        (first, second.model_copy(update={"weights": "sha256:other"})),
        (first, second.model_copy(update={"measured_by": MEASURING - 1})),
    ):
        records.write(found.model_copy(update={"replicas": changed}), measured)
        assert measure(measured, tiny, cpu, monkeypatch) == [1]
        assert records.read_evaluation("row", measured) == found


def test_weights_that_are_not_here_can_not_be_measured(
    measured: Path, tiny: Prepared, cpu: Execution
) -> None:
    records.evaluation_path("row", measured).unlink()
    weights_path("row", "epsilon=3", 1, measured).unlink()
    with pytest.raises(
        UserError, match=r"seed=1\.safetensors: No such file or directory; `dvc pull train@row` brings"
    ):
        evaluation.evaluate("row", declared(), tiny, cpu, measured)


def test_other_data_are_no_test_of_what_was_trained(measured: Path, tiny: Prepared, cpu: Execution) -> None:
    other = dataclasses.replace(tiny, manifest={**tiny.manifest, "digests": {"train.inputs": "sha256:other"}})
    evaluation.evaluate("row", declared(), other, cpu, measured)  # all stands
    records.evaluation_path("row", measured).unlink()
    with pytest.raises(UserError, match=r"row\.json: trained on other data than data/prepared/tiny"):
        evaluation.evaluate("row", declared(), other, cpu, measured)


# -- what no epsilon counts ------------------------------------------------------------------------------


@pytest.mark.parametrize(("titles", "told"), [(["MNIST"], True), (["MNIST", "KMNIST"], False)])
def test_a_public_split_of_the_private_set_is_told(tiny: Prepared, titles: list[str], told: bool) -> None:
    raw = {title.lower(): {"edition": "official", "title": title} for title in titles}
    data = Prepared(tiny.name, tiny.splits, {**tiny.manifest, "raw": raw, "public": {"raw": "any"}})
    found = list(data_uses(data, dpsgd()))
    assert found == ([statement("own_public", count=8)] if told else [])
    assert not told or words(found[0]).startswith("the public split: 8 examples of the same data set")


def test_a_vocabulary_of_private_texts_is_told(tiny: Prepared) -> None:
    texts = Prepared(tiny.name, tiny.splits, {**tiny.manifest, "text": {"vocabulary": 9}})
    assert list(data_uses(texts, dpsgd())) == [statement("vocabulary")]
    assert list(data_uses(tiny, dpsgd())) == []


@pytest.mark.parametrize(
    ("informed", "seen", "looks", "lines"),
    [
        (True, 3, True, ["without privacy on these private images", "3 test examples"]),
        (False, 0, True, ["taken as public"]),
        (True, 3, False, []),  # a method that doesn't look at relevances
    ],
)
def test_what_the_network_behind_relevances_saw_is_told(
    tiny: Prepared, informed: bool, seen: int, looks: bool, lines: list[str]
) -> None:
    behind = {"row": "before", "data": "mnist", "informed": informed, "test_examples_seen": seen}
    data = Prepared(tiny.name, tiny.splits, {**tiny.manifest, "relevance": behind})
    values = {"batch": 20, "epochs": 1, "learning_rate": 1e-3, "epsilon": 8.0, "variant": "sound"}
    own: MethodSettings = AdlmSettings.model_validate(values) if looks else dpsgd()
    found = [words(use) for use in data_uses(data, own)]
    assert len(found) == len(lines)
    for use, expected in zip(found, lines, strict=True):
        assert expected in use


def test_a_ledger_tells_the_search_and_the_mechanisms_own_uses() -> None:
    choices = statement("other_choices")
    always = (statement("examples_public"), statement("validation"), statement("timing"))
    assert ledger_of(trained(), False, None).not_covered == (choices, OWN, *always)
    search = statement("search", search="s")
    assert ledger_of(trained(), False, "s").not_covered == (search, choices, OWN, *always)
    assert ledger_of(trained(), False, None, among_others=True).not_covered[-1] == statement("all_replicas")


# -- what holds ------------------------------------------------------------------------------------------


def test_a_seed_or_a_flaw_leaves_no_bound() -> None:
    assert ledger_of(trained(), False, None).epsilon_upper is not None
    seeded = ledger_of(trained(), True, None, [5, 10])
    assert (seeded.reasons, seeded.epsilon_upper, seeded.spent) == ((SEEDED,), None, ())
    flaw = statement("joint_statistics")
    flawed = ledger_of(trained(broken=(flaw,)), True, None, [5, 10])
    assert (flawed.reasons, flawed.epsilon_upper, flawed.spent) == ((flaw,), None, ())
    assert flawed.claimed is not None


def test_nothing_private_leaves_an_empty_ledger() -> None:
    plain = statement("no_noise")
    found = ledger_of(trained(spending=None, delta=None, broken=(plain,)), False, "s", [5, 10])
    assert (found.event, found.claimed, found.epsilon_upper, found.reasons) == (None, None, None, (plain,))
    assert found.spent == ()


def test_spent_along_the_way_is_an_upper_bound_that_grows() -> None:
    found = ledger_of(trained(), False, None, [1, 5, 10])
    assert found.epsilon_upper is not None
    assert [step for step, _ in found.spent] == [1, 5, 10]
    spent = [epsilon for _, epsilon in found.spent]
    assert spent == sorted(spent)
    assert spent[-1] >= found.epsilon_upper


def test_a_ledger_from_before_its_numbers_were_kept_speaks_todays_words() -> None:
    then = ledger_of(trained(), False, None)
    old = trained(spending=None, delta=None, broken=(statement("joint_statistics"),), accounted_then=then)
    found = ledger_of(old, False, "s")
    assert (found.claimed, found.event) == (then.claimed, then.event)
    assert found.reasons == old.broken
    assert found.not_covered[0] == statement("search", search="s")


def released(quantity: str, *scales: float, span: float = 1.0) -> Laplace:
    return Laplace(quantity=quantity, claimed=0.5, distance=1.0, scales=scales, span=span)


RELEASES = Releases(laplace=(released("inputs", 1.0, 2.0, 8.0, span=2.0), released("labels", 4.0)))


def test_releases_have_a_pure_ledger_that_seeding_voids() -> None:
    protects = statement("local_at_claimed")
    own = trained(spending=RELEASES, delta=0.0, claimed_by="laplace", protects=protects)
    found = ledger_of(own, False, "s", [1, 10])
    assert (found.claimed, found.epsilon_upper, found.delta) == (1.0, 1 + 1 / 2 + 1 / 8 + 1 / 4, 0.0)
    assert found.spent == (
        (1, found.epsilon_upper),
        (10, found.epsilon_upper),
    )  # all of it before the first step
    assert found.protects == protects
    seeded = ledger_of(own, True, None)
    assert (seeded.reasons, seeded.epsilon_upper, seeded.protects) == ((SEEDED,), None, None)
    # as its run's file has it
    assert ledger_of(Trained.model_validate_json(own.model_dump_json()), False, "s", [1, 10]) == found


def test_releases_are_spent_from_the_first_step_on(tiny: Prepared, cpu: Execution, tmp_path: Path) -> None:
    values = {"batch": 20, "epochs": 0.2, "learning_rate": 1e-3, "epsilon": 8.0, "variant": "sound"}
    own = loop.Replica("epsilon=8", 0, IlmSettings.model_validate(values))
    model = Model.model_validate({"name": "adlm_cnn", "normalization": "response"})
    shown: list[loop.Progress] = []
    context = loop.Context(model, "ilm", False, tiny, cpu, shown.append, tmp_path / "checkpoint", 1e9)
    side_by_side.train_replicas([own], context)
    assert shown
    for progress in shown:
        (guarantee,) = progress.guarantees
        assert spent_so_far(guarantee, progress.reproducible, progress.step) == pytest.approx(8.0)
        assert spent_so_far(guarantee, True, progress.step) is None


def test_noise_is_the_median_in_spans_of_the_exact_values() -> None:
    assert evaluation.noise(RELEASES) == pytest.approx(
        {"noise_inputs": 2**0.5 * 2 / 2, "noise_labels": 2**0.5 * 4}
    )
    assert evaluation.noise(trained().spending) == {}


def test_every_replica_is_shown_however_many_are_measured_at_once(
    tiny: Prepared, cpu: Execution, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="not there; run `dprepro train row` first"):
        evaluation.evaluate("row", declared(3), tiny, cpu, tmp_path)
    training.train("row", declared(3), tiny, cpu, lambda progress: None, 1e9, tmp_path)
    kept = set()
    for at_once in (1, None, 2):
        records.evaluation_path("row", tmp_path).unlink(missing_ok=True)
        shown: list[str] = []
        how = replace(cpu, replicas_at_once=at_once)
        path = evaluation.evaluate("row", declared(3), tiny, how, tmp_path, shown.append)
        assert shown == [f"epsilon=3/seed={seed}" for seed in range(3)]
        kept.add(path.read_bytes())
    assert len(kept) == 1
    # nothing is left to measure: all are shown as measured, and the record stays
    before = path.read_bytes()
    evaluation.evaluate("row", declared(3), tiny, how, tmp_path, shown.append)
    assert (len(shown), path.read_bytes()) == (6, before)
