"""Runs, logs, fleets and nodes of NCCL tests, made for tests or recorded."""
