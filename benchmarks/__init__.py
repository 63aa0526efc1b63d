"""How long a training step takes, by every way there is, side by side."""
