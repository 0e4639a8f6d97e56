"""Programs that run in a pod and supervise others there: standard library only."""
