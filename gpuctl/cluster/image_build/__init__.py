"""Have OpenShift build an environment's image, from a folder here or a git repository."""
