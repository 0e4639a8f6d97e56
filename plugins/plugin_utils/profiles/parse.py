"""The shape of one profile file: which fields stand where, before anything that it extends is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.overlays import CONDITIONS

from ..strict_yaml import Mistake, Node, did_you_mean

ROW = ("value", "why", "source", "not_for", "read_back", "type")
OVERLAY = ("name", "why", "when", "knobs", "drop")
PROFILE = ("name", "about", "extends", "knobs", "drop", "overlays")
# What a host can be, for the conditions where that is a short list.
ANSWERS: Mapping[str, tuple[str, ...]] = {
    "machine": ("metal", "virtual", "container"),
    "family": ("debian", "rhel"),
    "arch": ("x86_64", "aarch64"),
    "nics": ("efa", "infiniband", "roce", "ethernet", "none"),
}


@dataclass(frozen=True)
class DraftRow:
    """A row as written; a field that is missing may be inherited."""

    name: str
    where: str
    fields: Mapping[str, Node]

    def text(self, name: str, inherited: str = "") -> str:
        node = self.fields.get(name)
        return inherited if node is None else str(node.value)


@dataclass(frozen=True)
class DraftOverlay:
    """An overlay as written."""

    name: str
    where: str
    why: str
    when: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, DraftRow]
    drop: Mapping[str, str]  # name -> where


@dataclass(frozen=True)
class Draft:
    """A profile as written."""

    name: str
    where: str
    about: str = ""
    extends: Node | None = None
    rows: Mapping[str, DraftRow] = field(default_factory=dict)
    drop: Mapping[str, str] = field(default_factory=dict)
    overlays: tuple[DraftOverlay, ...] = ()


def draft(node: Node, name: str, mistakes: list[Mistake]) -> Draft:
    """What a file says, with everything that has the wrong shape left out and told."""
    return _Drafter(mistakes).profile(node, name)


class _Drafter:
    def __init__(self, mistakes: list[Mistake]) -> None:
        self.mistakes = mistakes

    def wrong(self, where: str, wrong: str, hint: str = "") -> None:
        self.mistakes.append(Mistake(where, wrong, hint))

    def profile(self, node: Node, name: str) -> Draft:
        fields = self.fields(node, PROFILE, "a profile")
        given = self.text(fields, "name")
        if given and name and given != name:
            self.wrong(fields["name"].where, f"the name {given!r} is not the file's ({name})", "leave `name` out")
        if not fields.keys() & {"knobs", "extends", "overlays"}:
            self.wrong(node.where, "holds no knobs", "give it `knobs:` or `extends:`")
        return Draft(
            name or given,
            node.where,
            self.text(fields, "about"),
            fields.get("extends"),
            self.rows(fields.get("knobs")),
            self.drop(fields.get("drop")),
            self.overlays(fields.get("overlays")),
        )

    def fields(self, node: Node, known: tuple[str, ...], what: str) -> dict[str, Node]:
        """The known fields of a mapping; an empty text counts as not given."""
        if not isinstance(node.value, dict):
            self.wrong(node.where, f"{what} must be a mapping", f"with {', '.join(known)}")
            return {}
        for name, item in node.value.items():
            if name not in known:
                self.wrong(item.where, f"{what} has no field {name!r}", did_you_mean(name, known))
        return {name: item for name, item in node.value.items() if name in known and item.value != ""}

    def text(self, fields: Mapping[str, Node], name: str) -> str:
        node = fields.get(name)
        if node is None or isinstance(node.value, str):
            return "" if node is None else str(node.value)
        self.wrong(node.where, f"{name} must be one text")
        return ""

    def rows(self, node: Node | None) -> dict[str, DraftRow]:
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self.wrong(node.where, "knobs must be a mapping of knob names", "such as `sysctl.vm.swappiness:`")
            return {}
        return {name: self.row(name, item) for name, item in node.value.items()}

    def row(self, name: str, node: Node) -> DraftRow:
        if not isinstance(node.value, dict):  # the short form: knob: value
            return DraftRow(name, node.where, {} if node.value == "" else {"value": node})
        fields = self.fields(node, ROW, name)
        for each in ROW[1:]:
            self.text(fields, each)
        return DraftRow(name, node.where, fields)

    def drop(self, node: Node | None) -> dict[str, str]:
        return {str(item.value): item.where for item in self.items(node, "drop")}

    def items(self, node: Node | None, what: str) -> list[Node]:
        """A list of texts; one text alone is taken for a list of it."""
        if node is None:
            return []
        items = node.value if isinstance(node.value, list) else [node]
        for item in items:
            if not isinstance(item.value, str):
                self.wrong(item.where, f"{what} must be a list of texts")
        return [item for item in items if isinstance(item.value, str)]

    def overlays(self, node: Node | None) -> tuple[DraftOverlay, ...]:
        if node is None:
            return ()
        if not isinstance(node.value, list):
            self.wrong(node.where, "overlays must be a list")
            return ()
        found = [self.overlay(item) for item in node.value]
        first: dict[str, DraftOverlay] = {}
        for overlay in found:
            if first.setdefault(overlay.name, overlay) is not overlay:
                self.wrong(overlay.where, f"there is an overlay {overlay.name!r} already", "name it otherwise")
        return tuple(found)

    def overlay(self, node: Node) -> DraftOverlay:
        fields = self.fields(node, OVERLAY, "an overlay")
        for name in ("name", "why", "when"):
            if isinstance(node.value, dict) and name not in fields:
                self.wrong(node.where, f"an overlay needs `{name}`")
        name, why = self.text(fields, "name"), self.text(fields, "why")
        rows, drop = self.rows(fields.get("knobs")), self.drop(fields.get("drop"))
        for knob in rows.keys() & drop.keys():
            self.wrong(drop[knob], f"{knob} is both set and dropped here", "keep one")
        return DraftOverlay(name, node.where, why, self.when(fields.get("when")), rows, drop)

    def when(self, node: Node | None) -> dict[str, tuple[str, ...]]:
        if node is None:
            return {}
        if not isinstance(node.value, dict) or not node.value:
            self.wrong(node.where, "when must be a mapping", f"of {', '.join(CONDITIONS)}")
            return {}
        return {name: self.patterns(name, item) for name, item in node.value.items()}

    def patterns(self, name: str, node: Node) -> tuple[str, ...]:
        if name not in CONDITIONS:
            self.wrong(node.where, f"overlays cannot choose by {name!r}", did_you_mean(name, CONDITIONS))
        patterns = self.items(node, name)
        if not patterns:
            self.wrong(node.where, f"{name} lists nothing, so no host would fit")
        known = ANSWERS.get(name)
        for item in patterns:
            if known and not any(character in str(item.value) for character in "*?[") and item.value not in known:
                self.wrong(item.where, f"no host has {name} {item.value!r}", did_you_mean(str(item.value), known))
        return tuple(str(item.value) for item in patterns)
