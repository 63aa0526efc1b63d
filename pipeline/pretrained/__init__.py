"""Prepared data joined with something of a trained row: weights to start from, relevances."""
