"""Test the pods of an environment: their equipment, and whether they reach each other."""
