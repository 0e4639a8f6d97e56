"""Rules that judge a run, one per file: functions of the run, its context and the baselines."""
