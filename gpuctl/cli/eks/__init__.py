"""The commands of `gpuctl eks`."""
