"""The digits that a ledger keeps of an epsilon."""

from pipeline.privacy.risk import Risk
from pipeline.results.schema import Ledger
from pipeline.rounding import rounded_down, rounded_up

# What two machines, or two versions of numpy, share: they round a Fourier transform of a training's losses
# otherwise, which after 600,000 steps is a relative 1e-5 of epsilon. Where the end of a digit lies between,
# one writes one more of the last: what two machines' numbers may be apart is `SAME`.
DIGITS, NOISE = 5, 14
SAME = 10.0 ** (1 - DIGITS)


def up(epsilon: float) -> float:
    """An upper bound to `DIGITS` significant digits, never less than it by more than noise."""
    return float(rounded_up(_without_noise_digits(epsilon), DIGITS))


def down(epsilon: float) -> float:
    """A lower bound to `DIGITS` significant digits, never more than it by more than noise."""
    return float(rounded_down(_without_noise_digits(epsilon), DIGITS))


def stated(ledger: Ledger) -> Ledger:
    """A ledger with every epsilon to the digits kept."""

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
    """Attack risk with every number to the digits kept; its cut-off is no bound, and is rounded as such."""
    changes = {
        name: None if value is None else up(value) for name, value in risk if name not in ("least_rate",)
    }
    return risk.model_copy(update={**changes, "least_rate": float(f"{risk.least_rate:.2g}")})


def _without_noise_digits(value: float) -> float:
    """Without the digits that are noise, so that 0.1 + 0.15 is 0.25 and no more."""
    return float(f"{value:.{NOISE}g}")
