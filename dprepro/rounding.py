"""Rounding of bounds: upper bounds up, lower bounds down."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


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
