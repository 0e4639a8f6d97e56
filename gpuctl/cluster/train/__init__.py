"""Trains in the pods of an environment: checks, starts, listens, and ends it everywhere."""
