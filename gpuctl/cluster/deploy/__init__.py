"""From an environment to objects on a cluster, and away again: preflight, diff, apply, wait, status, scale, destroy."""
