"""Programs that run in pods: standard library only, Python 3.8, sent there as text."""
