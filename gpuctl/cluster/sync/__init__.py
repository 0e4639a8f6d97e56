"""Copy a folder to all pods of an environment, and keep it in sync."""
