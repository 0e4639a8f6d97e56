"""What runs in a pod: standard library only, Python 3.8, carried there as text."""
