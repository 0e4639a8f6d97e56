"""The rules a run is judged by, one a file: each a function of a run, what is known of it and the baselines."""
