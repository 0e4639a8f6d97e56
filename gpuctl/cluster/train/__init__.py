"""Distributed training in the pods of an environment: check, start, follow, and end it everywhere."""
