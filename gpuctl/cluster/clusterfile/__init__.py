"""The cluster file: its model, its reader, its rules and its schema."""
