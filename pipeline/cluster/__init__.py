"""Rows side by side, on one machine or on many: `dprepro repro --jobs N --on PLACE`.

Parsl has the graph of tasks, the retries and the workers. A task is the project's own commands for one row,
and the coordinator alone signs what came back. It reads what there is to do from records, checkpoints and
the lock, so that one that was killed is just started again.
"""
