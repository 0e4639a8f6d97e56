"""The workstation: its tools, their sources, and how to undo their installation."""
