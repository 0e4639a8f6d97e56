"""Edit single lines of a YAML file; all others stay as they were written."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from gpuctl.core.errors import InvalidInput


class Lines:
    """A file's lines, and the replacements of some of them."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.changed: dict[int, list[str]] = {}
        self.at_end: list[str] = []
        self.notes: list[str] = []
        top = yaml.compose(text, Loader=yaml.BaseLoader)
        if not isinstance(top, yaml.MappingNode):
            raise InvalidInput("migrate it", "it is not a mapping of cluster, nodes, storage and so on")
        self.top = top

    def note(self, line: int, path: str, text: str) -> None:
        self.notes.append(f"line {line + 1}: {path}: {text}")

    def put(self, line: int, *texts: str) -> None:
        self.changed[line] = list(texts)

    def comment_out(self, key: yaml.Node, value: yaml.Node) -> None:
        """Turn a field into a comment."""
        for number in range(key.start_mark.line, last_line(value) + 1):
            text = self.lines[number]
            bare = text.lstrip()
            self.put(number, f"{text[: len(text) - len(bare)]}# {bare}" if bare else text)

    def is_gone(self, line: int) -> bool:
        """Return True if a line is removed or only a comment remains."""
        return all(text.lstrip().startswith("#") for text in self.changed.get(line, [self.lines[line]]))

    def text(self) -> str:
        kept = [text for number, line in enumerate(self.lines) for text in self.changed.get(number, [line])]
        return "\n".join([*kept, *self.at_end, ""])


def last_line(value: yaml.Node) -> int:
    """Return the last line of a value. A block's end mark is the start of the next token, so its last part is used."""
    if isinstance(value, yaml.CollectionNode) and not value.flow_style:
        parts = [part for item in value.value for part in (item if isinstance(item, tuple) else (item,))]
        return max((last_line(part) for part in parts), default=value.start_mark.line)
    end = value.end_mark
    return end.line - 1 if end.column == 0 and end.line > value.start_mark.line else end.line


def children(node: yaml.Node) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        yield from node.value
