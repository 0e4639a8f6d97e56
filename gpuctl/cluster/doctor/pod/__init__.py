"""Programs that run in a pod: standard library only, Python 3.8, and read-only. `gpuhost` is sent along."""
