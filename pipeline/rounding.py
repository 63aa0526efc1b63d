"""Rounding of upper bounds: never down."""

from decimal import ROUND_CEILING, Context, Decimal


def rounded_up(value: float, digits: int) -> Decimal:
    """``value`` to so many significant digits, away from what would promise more privacy than is proven."""
    exact = Decimal(repr(value))
    found = Context(prec=digits, rounding=ROUND_CEILING).plus(exact).normalize()
    return found.quantize(Decimal(1)) if found == found.to_integral_value() else found
