"""Versions of the tmux configuration: create, check, preview, promote, roll back."""
