"""Rounding of bounds: upper bounds up, lower bounds down."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

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


def rounded_up(value: float, digits: int) -> Decimal:
    """``value`` rounded up to ``digits`` significant digits, so that an upper bound stays one."""
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int) -> Decimal:
    """``value`` rounded down to ``digits`` significant digits, so that a lower bound stays one."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> Decimal:
    exact = Decimal(repr(value))
    rounded = Context(prec=digits, rounding=rounding).plus(exact).normalize()
    is_integer = rounded == rounded.to_integral_value() and rounded.adjusted() < Context().prec
    return rounded.quantize(Decimal(1)) if is_integer else rounded


def _without_noise_digits(value: float) -> float:
    """Round to `NOISE` digits; all further digits are numerical noise. 0.1 + 0.15 becomes exactly 0.25."""
    return float(f"{value:.{NOISE}g}")
