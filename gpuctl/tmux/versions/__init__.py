"""Versions of the tmux configuration: made, checked, tried, told about, promoted and rolled back."""
