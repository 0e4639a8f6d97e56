"""Clusters, environments and their pods, made for tests."""
