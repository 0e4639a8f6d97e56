"""The gpuctl cluster commands, one file each."""
