"""Shared basics: errors, paths, settings, text and records of runs."""
