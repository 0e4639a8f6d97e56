"""Build an environment's image on OpenShift, from a local folder or a git repository."""
