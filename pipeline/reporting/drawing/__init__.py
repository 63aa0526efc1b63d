"""How figures look, and the two that every table has: its levels and its training curves."""
