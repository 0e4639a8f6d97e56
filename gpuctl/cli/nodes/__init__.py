"""The command `gpuctl nodes`."""
