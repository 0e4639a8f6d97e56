"""incident: the steps from a failed job to its cause and back, the remedies, the record and the post-mortem."""
