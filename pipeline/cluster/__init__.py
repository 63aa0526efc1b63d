"""Training of many rows at once: `dprepro repro --jobs N --on 'srun --gpus=1'`.

A task runs the project's own commands for one row, in a process of its own, here or by a launcher such as
Slurm's `srun`. Only the coordinator writes dvc.lock. It finds the missing work from records, checkpoints and
the lock, so after a kill the same command goes on.
"""
