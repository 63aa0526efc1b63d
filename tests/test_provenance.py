"""Provenance of records, and licences of the packages that made them."""

import re
from pathlib import Path

import pytest

from dprepro.pipeline.identity import provenance
from tests.checkout import commit, git


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with a package of this name at its top."""
    (tmp_path / "pipeline/models").mkdir(parents=True)
    (tmp_path / "pipeline/models/one.py").write_text("")
    monkeypatch.setattr(provenance, "PIPELINE", tmp_path / "pipeline")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # a hook that runs the tests sets them
        monkeypatch.delenv(name, raising=False)
    git("init", "--quiet", folder=tmp_path)
    commit(tmp_path)
    return tmp_path


def test_revision_is_of_code_and_dirty_by_code_alone(checkout: Path) -> None:
    revision, dirty = provenance.revision()
    assert revision is not None
    assert len(revision) == 40
    assert dirty is False

    (checkout / "reports").mkdir()
    (checkout / "reports/record.json").write_text("{}")
    assert provenance.revision() == (revision, False)
    commit(checkout)
    assert provenance.revision() == (revision, False)

    (checkout / "pipeline/models/more.py").write_text("")
    assert provenance.revision() == (revision, True)

    commit(checkout)
    later, dirty = provenance.revision()
    assert later not in (revision, None)
    assert dirty is False


def test_the_last_commit_until_a_time_is_of_the_history(checkout: Path) -> None:
    first, _ = provenance.revision()
    assert first is not None
    made = int(git("show", "-s", "--format=%ct", folder=checkout))
    assert provenance.last_commit(first, made + 0.5) == first
    assert provenance.last_commit(first, made - 1) is None


def test_a_commit_is_lost_where_the_whole_history_lacks_it(checkout: Path) -> None:
    revision, _ = provenance.revision()
    assert revision is not None
    assert not provenance.is_lost(revision)
    assert provenance.is_lost("0" * 40)
    (checkout / ".git/shallow").write_text(f"{revision}\n")  # as in a clone of some depth
    assert not provenance.is_lost("0" * 40)


def test_no_revision_outside_a_checkout_in_one_around_an_installed_package_and_without_git(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path_factory.mktemp("none"), checkout / ".venv"):
        (folder / "pipeline").mkdir(parents=True)
        with monkeypatch.context() as patch:
            patch.setattr(provenance, "PIPELINE", folder / "pipeline")
            assert provenance.revision() == (None, None)
            assert folder.is_relative_to(checkout) or not provenance.is_lost("0" * 40)
    monkeypatch.setenv("PATH", "")
    assert provenance.revision() == (None, None)


ROOT = Path(__file__).parents[1]


def test_every_locked_package_is_listed_with_a_licence() -> None:
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    table = [line.split("|") for line in (ROOT / "docs/licences.md").read_text().splitlines() if "|" in line]
    listed = {name.strip() for row in table[2:] for name in row[2].split(",")}
    assert listed == locked


def test_what_is_under_the_gpl_is_named_above_the_list() -> None:
    text, _, table = (ROOT / "docs/licences.md").read_text().partition("| licence |")
    for line in table.splitlines():
        if "GPL" in line or "General Public" in line:
            assert all(f"`{name.strip()}`" in text for name in line.split("|")[2].split(","))
