"""Rounding of a ledger's epsilons to the stored digits."""

from dprepro.pipeline.results.schema import Ledger
from dprepro.privacy.risk import Risk
from dprepro.rounding import rounded_down, rounded_up

# Machines and numpy versions round a Fourier transform of losses differently. After 600,000 steps, epsilon
# differs by a relative 1e-5. So the last stored digit may differ by one, at most a relative
# `MACHINE_TOLERANCE`.
DIGITS, NOISE = 5, 14
MACHINE_TOLERANCE = 10.0 ** (1 - DIGITS)


def up(epsilon: float) -> float:
    """Round an upper bound upwards to `DIGITS` digits; digits after the first `NOISE` are ignored."""
    return float(rounded_up(_without_noise_digits(epsilon), DIGITS))


def down(epsilon: float) -> float:
    """Round a lower bound downwards to `DIGITS` digits; digits after the first `NOISE` are ignored."""
    return float(rounded_down(_without_noise_digits(epsilon), DIGITS))


def stated(ledger: Ledger) -> Ledger:
    """Ledger with every epsilon, and the attack risk, rounded to the stored digits."""

    def upper(value: float | None) -> float | None:
        return None if value is None else up(value)

    return ledger.model_copy(
        update={
            "claimed": upper(ledger.claimed),
            "epsilon_upper": upper(ledger.epsilon_upper),
            "epsilon_lower": None if ledger.epsilon_lower is None else down(ledger.epsilon_lower),
            "accountants": tuple(
                entry.model_copy(update={"epsilon": upper(entry.epsilon)}) for entry in ledger.accountants
            ),
            "releases": tuple(
                entry.model_copy(
                    update={"claimed": up(entry.claimed), "epsilon_upper": upper(entry.epsilon_upper)}
                )
                for entry in ledger.releases
            ),
            "spent": tuple((step, up(epsilon)) for step, epsilon in ledger.spent),
            "risk": ledger.risk and _stated_risk(ledger.risk),
        }
    )


def _stated_risk(risk: Risk) -> Risk:
    """Attack risk with its bounds rounded up, and its cut-off ``least_rate`` rounded up to two digits."""
    changes = {name: None if value is None else up(value) for name, value in risk}
    return risk.model_copy(update={**changes, "least_rate": float(rounded_up(risk.least_rate, 2))})


def _without_noise_digits(value: float) -> float:
    """Round to `NOISE` digits; all further digits are numerical noise. 0.1 + 0.15 becomes exactly 0.25."""
    return float(f"{value:.{NOISE}g}")
