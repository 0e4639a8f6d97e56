"""gpu-node: the software stack of GPU hosts."""
