"""Rows side by side, on one machine or on many: `dprepro repro --jobs N --on PLACE`.

A coordinator hands out tasks, each of them the project's own commands for one row, and signs what came back.
What there is to do it reads from records, checkpoints and the lock alone, so that one that was killed is just
started again.
"""
