"""Training of many rows at once, on one machine or on many: `dprepro repro --jobs N --on PLACE`.

Parsl manages the graph of tasks, the retries and the workers. A task runs the project's own commands for one
row; only the coordinator writes dvc.lock. The coordinator finds the missing work from records, checkpoints
and the lock. After a kill, run the same command again.
"""
