"""The tmux environment: its keys, layouts and configuration versions."""
