"""The command line: arguments in, one call, findings out."""
