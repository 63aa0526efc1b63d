"""Prose of the report: findings, counts and remarks."""
