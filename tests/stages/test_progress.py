"""What a person sees while training."""

from dataclasses import replace

import pytest

from dprepro.accountants.bounds import smallest_bound, spent_epsilon
from dprepro.accountants.laplace import Laplace, Releases
from dprepro.accountants.records import SampledGaussian, rounded_up
from dprepro.pipeline.methods.spending import Guarantee, statement
from dprepro.pipeline.training.loop import Progress
from dprepro.stages import progress


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
