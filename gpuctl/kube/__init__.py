"""Kubernetes from the workstation: shells, forwards, notices, explanations."""
