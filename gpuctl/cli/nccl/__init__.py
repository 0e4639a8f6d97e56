"""The gpuctl nccl commands, one file each."""
