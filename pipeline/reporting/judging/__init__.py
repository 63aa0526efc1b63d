"""Verdicts on values, contrasts, claims and guarantees, and the intervals behind them."""
