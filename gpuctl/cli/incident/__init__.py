"""incident: from a failed job to its cause, and to the job that runs again."""
