"""Runs launches on Kubernetes: a pod on each node, one that starts the test, and nothing left of them afterwards."""
