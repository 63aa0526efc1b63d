"""Benchmarks of training steps, commands and audits."""
