"""`dprepro fetch` and `dprepro prepare` as typed."""

import pytest
from typer.testing import CliRunner

from stages.app import app

PARAMS = """
source: {kind: KIND}
raw: {mnist: {train: 60, test: 20}, kmnist: {train: 20, test: 10}}
data: {small: {raw: mnist, train: 40, validation: 10, public: {raw: kmnist, count: 8}}}
rows: {}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPREPRO_MIRROR", raising=False)
    (tmp_path / "params.yaml").write_text(PARAMS.replace("KIND", "synthetic"))
    return tmp_path


def test_each_prints_what_it_wrote_where(project):
    for raw in ("mnist", "kmnist"):
        done = CliRunner().invoke(app, ["fetch", raw], catch_exceptions=False)
        assert done.stdout.startswith(f"data/raw/{raw}: 4 files, edition synthetic, sha256:")
    done = CliRunner().invoke(app, ["prepare", "small"], catch_exceptions=False)
    assert "data/prepared/small: train 40, validation 10, test 20, public 8" in done.stdout
    assert "mnist synthetic, kmnist synthetic; sha256:" in done.stdout
    assert done.stdout.count("\n") == 1


def test_the_mirror_comes_from_the_option_or_the_environment(project, small):
    _, published = small("mnist")
    (project / "params.yaml").write_text(PARAMS.replace("KIND", "official"))
    lines = [
        CliRunner().invoke(app, ["fetch", "mnist", *options], env=env, catch_exceptions=False).stdout
        for options, env in ((["--mirror", str(published)], {}), ([], {"DPREPRO_MIRROR": str(published)}))
    ]
    assert lines[0] == lines[1]
    assert "edition official" in lines[0]
