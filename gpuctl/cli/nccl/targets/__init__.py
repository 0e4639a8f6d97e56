"""Targets of NCCL tests: hosts of an inventory, a Slurm job, pods, or a deployed environment."""
