"""The gpuctl tmux commands."""
