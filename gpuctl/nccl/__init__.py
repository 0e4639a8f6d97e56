"""Validate a GPU fleet's fabric with nccl-tests, and identify faulty nodes."""
