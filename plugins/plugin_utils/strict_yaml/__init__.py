"""Strict YAML: `read` returns nodes with lines, which the field types of `schema` check.

All mistakes are collected, each with its line. Duplicate keys, aliases, tags and deep nesting are refused.
"""

from .document import EmptyFile, Mistake, Node, did_you_mean, from_plain, read

__all__ = ["EmptyFile", "Mistake", "Node", "did_you_mean", "from_plain", "read"]
