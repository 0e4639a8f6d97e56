"""Reach a machine or a pod, and start and supervise programs there."""
