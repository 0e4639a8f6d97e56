"""Deploy an environment to a cluster and manage it: preflight, diff, apply, wait, status, scale, destroy."""
