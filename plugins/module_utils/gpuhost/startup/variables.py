"""Shell text with the values of its variables, and with full paths where it changes to a folder of the kernel.

Scripts often name a kernel file in parts: `path=/sys/kernel/mm/transparent_hugepage; echo never > $path/enabled`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice, product
from math import prod

# A name and a value, or the words of a loop; a value that the shell computes is not known.
ASSIGNMENT = re.compile(r"(?<![\w$-])(\w+)=(?:\"([^\"$`]*)\"|'([^']*)'|([^\s;&|)\"'$`]+))(?=[\s;&|)\"']|$)")
LOOP = re.compile(r"(?<!\w)for\s+(\w+)\s+in\s+([^;\n$`]+)")
COMPUTED = re.compile(r"(?<![\w$-])(\w+)=(?=[\"']?[^\s;&|]*[$`])|\bread\s+(?:-\w+\s+)*(\w+)")
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
FOLDER = re.compile(r"(?<![\w-])(?:(?:cd|pushd)\s+[\"']?([^\s;&|)\"']+)|popd)")
TARGET = re.compile(r"(>>?\s*|(?<!\w)tee\s+(?:-\w+\s+)*)([\"']?)(?:\./)?(?=[a-zA-Z_]\w*[\w./-]*[\"']?(?:[\s;&|)]|$))")
MOST = 256  # texts that one line may become
KERNEL = ("/proc/sys", "/sys", "sysctl")
WRITERS = (">", "tee", "sysctl")


class Shell:
    """The variables of a text, and the folder of the lines that were read so far.

    `sets`: a line may become another text. `is_cut`: some texts of a line were left out, as there are too many.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.folder = ""
        self.is_cut = False
        self.sets = ("$" in text or "cd " in text or "pushd " in text) and any(word in text for word in KERNEL)

    def texts(self, line: str) -> Iterator[str]:
        """The texts that the next line may stand for; the line as it is, too, where a value is not known."""
        if "$" not in line or not any(word in line for word in WRITERS):
            yield self._in_folder(line)
            return
        names = list(dict.fromkeys(a or b for a, b in VARIABLE.findall(line) if (a or b) in self._values))
        if not names or any(name in self._computed for name in names):
            yield self._in_folder(line)
        choices = product(*(self._values[name] for name in names))
        self.is_cut = self.is_cut or prod(len(self._values[name]) for name in names) > MOST
        for values in islice(choices, MOST if names else 0):
            yield self._in_folder(_with(line, dict(zip(names, values))))

    @cached_property
    def _values(self) -> dict[str, list[str]]:
        pairs = [(name, "".join(quoted)) for name, *quoted in ASSIGNMENT.findall(self.text)]
        pairs += [(name, word.strip("\"'")) for name, words in LOOP.findall(self.text) for word in words.split()]
        values: dict[str, list[str]] = {}
        for name, value in dict.fromkeys(pairs):
            values.setdefault(name, []).append(value)
        return values

    @cached_property
    def _computed(self) -> set[str]:
        return {name for names in COMPUTED.findall(self.text) for name in names}

    def _in_folder(self, line: str) -> str:
        """The line with full paths for the files below a folder of the kernel that it writes to."""
        if not (self.folder or "cd " in line or "pushd " in line):
            return line
        located, at = "", 0
        for change in FOLDER.finditer(line):
            located += self._located(line[at : change.end()])
            at = change.end()
            folder = posixpath.normpath(posixpath.join(self.folder or "/", change[1] or "/"))
            self.folder = folder if folder.startswith(("/proc/sys", "/sys")) else ""
        return located + self._located(line[at:])

    def _located(self, text: str) -> str:
        return TARGET.sub(rf"\1\2{self.folder}/", text) if self.folder else text


def _with(line: str, values: dict[str, str]) -> str:
    return VARIABLE.sub(lambda match: values.get(match[1] or match[2], match[0]), line)
