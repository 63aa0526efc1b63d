"""Export of a trained network: weights, a model card with a privacy statement, predictions."""
