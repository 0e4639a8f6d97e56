"""Strict YAML: `read` gives a document whose every part knows its line, the field types of `schema` check it.

All mistakes are collected, each with its line. Refused are: a key given twice, aliases, tags, and deep nesting.
"""

from .document import EmptyFile, Mistake, Node, did_you_mean, from_plain, read

__all__ = ["EmptyFile", "Mistake", "Node", "did_you_mean", "from_plain", "read"]
