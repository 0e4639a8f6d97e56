"""Probes of an environment's pods, and the checks that `train` and `test` share."""
