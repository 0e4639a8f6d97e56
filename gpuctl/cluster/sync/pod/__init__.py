"""The receiver that runs in a pod: standard library only, Python 3.8, sent there as text by `stream.py`."""
