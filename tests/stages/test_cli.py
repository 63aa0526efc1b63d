"""What commands say: help, errors, epsilon against dp-accounting, progress and last lines; their imports."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import typer
from dp_accounting.pld import PLDAccountant
from typer.testing import CliRunner, Result

import dprepro
from dprepro.accountants.bounds import smallest_bound, spent_epsilon
from dprepro.accountants.calibration import poisson_gaussian
from dprepro.accountants.laplace import Laplace, Releases
from dprepro.accountants.records import SampledGaussian, rounded_up
from dprepro.pipeline.methods.spending import Guarantee, statement
from dprepro.pipeline.training.loop import Progress
from dprepro.stages import progress
from dprepro.stages.answers import accounted, measured
from dprepro.stages.app import app, main
from dprepro.stages.run_commands import run_commands
from tests.refusal import refusal_of

ROOT = Path(__file__).parents[2]
# What takes seconds to import; a stage imports it when it runs.
HEAVY = {"torch", "mlflow", "matplotlib", "opacus", "dp_accounting", "pandas", "scipy.stats", "dvc"}


def names() -> list[str]:
    return sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_the_page_of_commands_lists_every_command() -> None:
    page = (ROOT / "docs/commands.md").read_text()
    assert set(re.findall(r"`(?:dprepro )(\w+)", page)) == set(names())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["train", "row"], "params.yaml: can't be read: No such file or directory; run this in the folder"),
        (["predict", "\x1b[2J", "x"], "\\x1b[2J/config.json: can't be read: No such file or directory"),
        (["init", 300 * "a"], f"{300 * 'a'}: File name too long\n"),
        (["audit", "row", "--level", "epsilon=3"], "--level epsilon=3: allowed with --model"),
    ],
)
def test_a_mistake_is_one_line(
    line: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dprepro", *line])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert told.startswith(f"dprepro: {said}")
    assert told.count("\n") == 1


def test_a_gpu_that_is_too_small_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dprepro.stages.app.app", Mock(side_effect=torch.cuda.OutOfMemoryError))
    with pytest.raises(SystemExit):
        main()
    line = "dprepro: the GPU's memory is too small; lower --physical or --workers\n"
    assert capsys.readouterr().err == line


def test_output_that_cannot_be_written_is_a_line() -> None:
    with open("/dev/full", "w") as full:
        line = [sys.executable, "-m", "dprepro.stages", "--version"]
        done = subprocess.run(line, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "dprepro: output: No space left on device\n")


def test_what_fails_says_so_as_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("rows: 3\n")
    monkeypatch.setattr("sys.argv", [])  # which it sets
    assert run_commands([["epsilon", "--help"], ["ledger", "nothing"], ["epsilon", "--help"]]) == 1
    told = capsys.readouterr()
    assert told.out.count("Usage: dprepro epsilon") == 1
    assert told.err.startswith("dprepro: params.yaml: ")


def imported(*commands: str) -> set[str]:
    """Heavy libraries that the commands import, in a process of their own."""
    script = (
        "import sys\nfrom dprepro.stages.app import app\n"
        f"for line in {commands!r}: app(line.split(), standalone_mode=False)\n"
        f"print('imported:', *({HEAVY!r} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    return set(last.removeprefix("imported:").split())


def test_what_there_is_to_do_imports_nothing_heavy() -> None:
    assert imported("status", "plan") == set()


def test_a_row_is_verified_without_mlflow_and_opacus() -> None:
    assert not imported("verify davody-t2-lenet-300-100") & {"mlflow", "opacus", "dvc", "pandas"}


SETTINGS = ("--examples", "60000", "--batch", "256", "--epochs", "20")


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["epsilon", *arguments], catch_exceptions=False)


def test_it_prints_every_accountants_epsilon_and_what_it_is() -> None:
    result = asked(*SETTINGS, "--sigma", "1.1")
    assert result.exit_code == 0, result.stderr
    theirs = PLDAccountant().compose(poisson_gaussian(256 / 60000, 1.1, 4688)).get_epsilon(1e-5)
    assert theirs == pytest.approx(1.315, abs=0.005)
    assert "4,688 steps" in result.stdout
    assert "epsilon at most 1.32 proven (pld" in result.stdout
    for words in ("rdp (dp-accounting", "tan (Eq. 4)", "a lower bound", "not a bound"):
        assert words in " ".join(result.stdout.split())  # a cell has several lines


def test_it_imports_neither_torch_nor_yaml_and_takes_little_memory() -> None:
    """In a process of its own: others in this one have torch. VmHWM is its peak memory, in kB."""
    script = (
        "import re, sys; sys.argv = ['dprepro', 'epsilon', *sys.argv[1:]]\n"
        "from dprepro.stages.app import app\napp(standalone_mode=False)\n"
        "assert not {'torch', 'opacus', 'mlflow', 'dvc', 'pandas', 'ruamel.yaml'} & sys.modules.keys()\n"
        "assert int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) < 250e3"
    )
    command = [sys.executable, "-c", script, *SETTINGS, "--sigma", "1.1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("sampling", ["poisson", "fixed", "shuffled"])
def test_noise_is_found_for_every_sampling(sampling: str) -> None:
    options = ("--examples", "2000", "--batch", "100", "--steps", "40", "--sampling", sampling)
    ledger = json.loads(asked(*options, "--for-epsilon", "2", "--json").stdout)
    assert 0.998 * 2 <= ledger["epsilon_upper"] <= 2
    assert ledger["claimed"] is None


def test_the_noise_that_is_printed_keeps_the_epsilon() -> None:
    """Rounded to the nearest, 1.00376 would be 1, which spends more."""
    options = ("--examples", "100", "--batch", "100", "--steps", "1")
    result = asked(*options, "--for-epsilon", "4.3583")
    printed = re.search(r"noise multiplier (\S+),", result.stdout)
    assert printed is not None
    again = json.loads(asked(*options, "--sigma", printed[1], "--json").stdout)
    assert 0.999 * 4.3583 < again["epsilon_upper"] <= 4.3583


def test_the_best_of_a_search_stands_beside_a_training_of_its_own() -> None:
    result = asked(*SETTINGS, "--sigma", "1.1", "--best-of", "10", "--json")
    *_, best = json.loads(result.stdout)["accountants"]
    assert best["accountant"] == "rdp, best of 10 (geometric)"
    spent = dprepro.epsilon(
        examples=60000, batch=256, epochs=20, noise_multiplier=1.1, delta=1e-5, best_of=10
    )
    assert best["epsilon"] == spent.best


def test_a_delta_that_means_little_is_told() -> None:
    result = asked("--examples", "1000", "--batch", "100", "--steps", "10", "--sigma", "2", "--delta", "1e-3")
    assert result.exit_code == 0
    assert "not below 1/N" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (SETTINGS, "--sigma or --for-epsilon"),
        ((*SETTINGS, "--sigma", "-1"), "sigma: -1.0 is not allowed"),
        ((*SETTINGS, "--for-epsilon", "0"), "must be above 0"),
        (("--examples", "10", "--batch", "20", "--steps", "1", "--sigma", "1"), "allowed: 1 to 10"),
    ],
)
def test_a_mistake_in_a_setting_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    assert said in refusal_of(lambda: asked(*arguments))


def test_commands_end_with_what_they_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (infinite, *_) = [line for line in measured("davody-t2-lenet-300-100") if "sigma = 0:" in line]
    assert "test accuracy 98.1" in infinite
    assert "(n = 3) percent" in infinite
    lines = list(accounted("davody-t5-bn-lenet5-literal"))
    assert lines[0].startswith("epsilon = 7: no epsilon is proven, 7 claimed: batch statistics couple")
    together = "\n".join(accounted("davody-t5-ln-lenet5-planned"))
    assert re.search(r"and [1-9]\d* trainings of its search have at most ε = \d", together)
    (mu, *_) = accounted("nguyen-gdp-modules")
    assert mu.startswith("noise_multiplier = 2.5: epsilon at most 2.09 proven")


def guarantee(epsilon: float) -> Guarantee:
    """What was bought at once, at so much."""
    part = Laplace(quantity="inputs", claimed=epsilon, distance=epsilon, scales=(1.0,), span=1.0)
    return Guarantee(Releases(laplace=(part,)), 0.0, "laplace")


SPENT = guarantee(4.6121)
STATE = Progress(
    name="epsilon=3/seed=1", number=1, trainings=6, step=107, steps=430, epoch=1.99, logged=True,
    guarantee=SPENT, reproducible=False, train_loss=0.25, validation_accuracy=0.9412,
    is_guess=False, seconds_left=754.2,
)  # fmt: skip


def test_a_line_tells_epsilon_spent_and_time_left() -> None:
    line = progress.describe(STATE)
    assert line.startswith("training 2/6 (epsilon=3/seed=1)  step 107/430")
    assert "epsilon by a quick bound at most 4.62 " in line  # never rounded down
    assert "validation 94.12 %  " in line
    assert "validation 94.12 % (no better than guessing)  " in progress.describe(
        replace(STATE, is_guess=True)
    )
    assert line.endswith("12:34 left")
    assert "validation" not in progress.describe(replace(STATE, validation_accuracy=None))


@pytest.mark.parametrize(
    "changes",
    [
        {"reproducible": True},
        {"guarantee": Guarantee(None, None, None, (statement("no_noise"),))},
        {"guarantee": replace(SPENT, broken=(statement("shared_noise"),))},
    ],
    ids=["seeded", "nothing private", "broken"],
)
def test_where_nothing_holds_no_epsilon_is_shown(changes: dict[str, object]) -> None:
    state = replace(STATE, **changes)  # type: ignore[arg-type]
    assert "not private" in progress.describe(state)
    assert "epsilon by" not in progress.describe(state)


def test_noise_in_every_step_is_spent_step_by_step() -> None:
    spending = SampledGaussian(sampling="poisson", noise_multiplier=1.1, examples=55_000, batch=1024)
    state = replace(STATE, guarantee=Guarantee(spending, 1e-5, "rdp"))
    shown = [
        float(progress.describe(replace(state, step=step)).split("at most ")[1].split()[0])
        for step in (1, 429)
    ]
    for told, step in zip(shown, (1, 429), strict=True):
        exact = spent_epsilon(spending, step, 1e-5)
        assert exact <= told <= 1.01 * exact
    assert shown[0] < shown[1]


def test_the_last_epsilon_is_the_ledgers() -> None:
    spending = SampledGaussian(sampling="poisson", noise_multiplier=1.1, examples=55_000, batch=1024)
    last = replace(STATE, guarantee=Guarantee(spending, 1e-5, "rdp"), step=430)
    proven = smallest_bound(spending, 430, 1e-5)
    assert proven < 0.99 * spent_epsilon(spending, 430, 1e-5)
    assert f"  epsilon at most {rounded_up(proven, 3)}  " in progress.describe(last)


def test_plain_lines_come_at_an_epochs_end(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.showing("row") as show:  # pytest's output is no terminal
        show(replace(STATE, logged=False))
        show(STATE)
    assert capsys.readouterr().out == f"row: {progress.describe(STATE)}\n"
