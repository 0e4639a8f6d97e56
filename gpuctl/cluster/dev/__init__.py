"""A program in a pod while it is being written: synced, run, and begun anew on every change."""
