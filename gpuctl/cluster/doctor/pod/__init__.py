"""The probe that runs in a pod: standard library and gpuhost only, Python 3.8, read-only."""
