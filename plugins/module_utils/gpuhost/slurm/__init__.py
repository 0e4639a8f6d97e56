"""Slurm on a node: its files gres.conf and cgroup.conf, what they should have, and when they may change."""
