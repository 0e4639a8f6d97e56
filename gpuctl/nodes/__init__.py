"""Use of the GPUs of a fleet: who computes on which, since when, and which are free."""
