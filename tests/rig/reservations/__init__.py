"""Simulated nodes, messages and people for the reservation rules."""
