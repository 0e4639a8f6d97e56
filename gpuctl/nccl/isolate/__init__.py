"""Which runs to make next to find what is bad in a fleet, and what has been proved by those that were made."""
