"""Parts shared by all runners: output, outcome, host names and error messages of a launch."""
