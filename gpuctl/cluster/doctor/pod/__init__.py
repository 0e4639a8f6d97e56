"""What runs in a pod: standard library alone, Python 3.8, and it writes nothing there. `gpuhost` goes with it."""
