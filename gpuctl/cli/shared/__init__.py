"""Options, output and display that several command groups share."""
