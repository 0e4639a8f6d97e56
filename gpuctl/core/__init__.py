"""What every feature shares: errors, verdicts, places, records of runs."""
