"""Facts of a host, read but not judged."""
