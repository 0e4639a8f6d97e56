"""Draft a cluster file from what a live cluster says of itself."""
