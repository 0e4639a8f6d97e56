"""Flows that need several features."""
