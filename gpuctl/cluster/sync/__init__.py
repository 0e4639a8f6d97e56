"""Bring a folder to all pods of an environment, and keep it there while it is worked on."""
