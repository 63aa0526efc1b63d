"""Prepared data joined with a trained row's weights, features or relevances."""
