"""Forwards that stay: many pods at once, planned, probed, and taken up again."""
