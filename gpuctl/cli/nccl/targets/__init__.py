"""Where NCCL tests run: hosts of an inventory, a Slurm job, pods, or a deployed environment."""
