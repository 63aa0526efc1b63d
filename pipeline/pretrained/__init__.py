"""Copies of prepared data sets with a trained row's weights, features or relevances."""
