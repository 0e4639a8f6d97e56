"""The gpuctl kube commands."""
