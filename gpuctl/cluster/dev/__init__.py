"""Run a script in a pod while it is being edited: sync, run, restart on every change."""
