"""Runs launches as steps of a Slurm job: one allocation for the whole test, given back afterwards."""
