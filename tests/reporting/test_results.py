import re
from pathlib import Path

import pytest

from dprepro.errors import UserError
from dprepro.pipeline.reporting import papers
from dprepro.pipeline.reporting.caveats import record_caveats
from dprepro.pipeline.reporting.gather import gather
from dprepro.pipeline.reporting.results import RowResult
from dprepro.pipeline.reporting.wording import column_heads, columns_words
from tests.reporting import lookup
from tests.reporting.lookup import row
from tests.reporting.made_up import dpsgd, toys


def layer(tmp_path: Path, edition: str = "official", **change: object) -> RowResult:
    """The row with layer norm alone, declared with ``change``."""
    declared = dpsgd.settings(**{dpsgd.LAYER: change})
    dpsgd.put(dpsgd.record(dpsgd.LAYER, declared, edition), tmp_path)
    return row(lookup.table(declared, tmp_path), dpsgd.LAYER)


def words(row: RowResult) -> list[str]:
    return [caveat.words for caveat in row.caveats]


def test_a_replica_on_other_data_marks_its_row(tmp_path: Path) -> None:
    """Rows that are adopted where the data are not prepared may have some."""
    declared = dpsgd.settings()
    record = dpsgd.record(dpsgd.LAYER, declared)
    other = {"edition": {"mnist": "synthetic", "kmnist": "mirrored"}, "examples": 54000, "reproducible": True}
    origins = record.origins[0], record.origins[0].model_copy(update=other)
    replicas = tuple(
        replica.model_copy(update={"origin": int(replica.seed == 2)}) for replica in record.replicas
    )
    mixed = record.model_copy(update={"origins": origins, "replicas": replicas})
    assert [caveat.words for caveat in record_caveats(mixed, papers.load("davody2020").tables["t5"])] == [
        "synthetic data",
        "kmnist: mirrored edition",
        "trained on 54,000 of 60,000 examples",
        "noise seeded: no guarantee",
    ]


def test_synthetic_data_are_marked_and_not_compared(tmp_path: Path) -> None:
    synthetic = layer(tmp_path, "synthetic")
    judged = lookup.value(lookup.table(dpsgd.settings(), tmp_path), dpsgd.LAYER, "epsilon=3")
    assert words(synthetic) == [dpsgd.BUDGET, "synthetic data", dpsgd.EXAMPLES]
    cell = synthetic.cells["epsilon=3"]
    assert (cell.difference, judged.verdict, judged.words) == (None, None, "synthetic data")
    assert cell.printed is not None  # still shown


def test_another_edition_and_seeded_noise_are_marked_but_compared(tmp_path: Path) -> None:
    partial = layer(tmp_path, "partial", reproducible=True)
    editions = ["kmnist: partial edition", "mnist: partial edition"]
    assert words(partial) == [dpsgd.BUDGET, *editions, dpsgd.EXAMPLES, "noise seeded: no guarantee"]
    assert partial.cells["epsilon=3"].difference is not None
    assert partial.cells["epsilon=3"].guarantee.state == "none_proven"


def test_numbers_of_other_settings_than_declared_are_marked(tmp_path: Path) -> None:
    layer(tmp_path)
    changed = {"settings": {"batch": 512, "epochs": 8, "learning_rate": 0.5}}
    stale = row(lookup.table(dpsgd.settings(**{dpsgd.LAYER: changed}), tmp_path), dpsgd.LAYER)
    assert words(stale) == [dpsgd.BUDGET, dpsgd.EXAMPLES, "settings have changed since this run"]
    assert not stale.comparable


def test_records_of_rows_no_longer_declared_are_left_out(tmp_path: Path) -> None:
    declared = dpsgd.fill(tmp_path)
    fewer = declared.model_copy(update={"rows": {dpsgd.LAYER: declared.rows[dpsgd.LAYER]}})
    assert [row.key for row in lookup.table(fewer, tmp_path).rows] == [dpsgd.LAYER]


def test_rows_of_a_paper_and_table_of_ones_own_need_no_file(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{dpsgd.LAYER: {"paper": "mine", "table": "first", "label": "idea"}})
    dpsgd.put(dpsgd.record(dpsgd.LAYER, declared), tmp_path)
    mine = gather(declared, tmp_path)[1]
    assert (mine.key, mine.tables[0].lines[0].label) == ("mine", "idea")
    assert mine.tables[0].levels == tuple(f"epsilon={level}" for level in dpsgd.LEVELS)


def test_rows_of_several_axes_are_one_table_whose_heads_name_the_setting() -> None:
    own = {"table": "mine", "line": None}
    longer = own | {"label": "Longer", "axis": "epochs", "levels": [{"epochs": 2, "sigma": 1}]}
    (table,) = toys.ran({"row": None, "longer": None}, {"row": own, "longer": longer}).tables
    assert column_heads(table) == ["σ = 0", "σ = 1", "epochs = 2"]
    assert columns_words(table) == "sigma, epochs"
    (alone,) = toys.ran({"row": None}, {"row": own}).tables
    assert column_heads(alone) == ["0", "1"]


def test_a_line_that_the_paper_has_not_is_refused_by_name() -> None:
    declared = toys.settings(row={"line": "ones"})
    with pytest.raises(UserError) as refused:
        toys.judged(toys.paper(), declared)
    assert str(refused.value) == "params.yaml: row: line: 'ones'; allowed, as toys's t has it: one"


def test_marks_stand_beside_the_row_and_one_seed_shows_no_interval(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"budget": "reduced", "reproducible": True, "seeds": 1}})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared, "synthetic"), tmp_path)
    text = lookup.section(lookup.table(declared, tmp_path))
    assert f"reduced budget: 8 epochs synthetic data {dpsgd.EXAMPLES} noise seeded: no guarantee" in text
    assert "(n = 1: no interval)" in text
    assert not re.search(r"\d ± \d", text)
