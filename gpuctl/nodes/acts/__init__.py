"""Decisions about acts on nodes: which work a word names, what may end it, and what is refused. No I/O."""
