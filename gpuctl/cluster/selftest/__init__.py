"""Tests the pods of an environment: what they have, and whether they reach each other."""
