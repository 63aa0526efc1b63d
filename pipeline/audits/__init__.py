"""Audits: attacks on the code that ran, and the epsilon that they show at least."""
