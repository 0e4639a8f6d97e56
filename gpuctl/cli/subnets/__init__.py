"""The commands of `gpuctl subnets`."""
