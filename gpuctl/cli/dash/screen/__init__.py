"""Drawing of the panels with Textual; imported when the command runs, as Textual takes a second to load."""
