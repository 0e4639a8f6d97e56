"""Validate the fabric of a GPU fleet with NCCL's own tests, and name the node that spoils it."""
