"""A trained network for others to use: weights, a model card with a privacy statement, predictions."""
