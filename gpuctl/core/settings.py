"""The user's settings, one small file: config_dir()/settings.yml. Missing means the defaults below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ansible_collections.gpuctl.fleet.plugins.plugin_utils.strict_yaml import Mistake, Node, did_you_mean, read

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import config_dir

STAGES = ("production", "staging", "development")


@dataclass(frozen=True)
class Settings:
    """What a user can set for the workstation.

    `contexts`: stage -> shell patterns of Kubernetes context names, looked through in the order of `STAGES`.
    `repositories`: window name -> folder of the repository it works in. `workspace`: where new windows start.
    `ask`: the command that `gpuctl kube explain --ask` hands its text to, on standard input.
    """

    contexts: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: {
            "production": ("*prod*", "prd-*", "*-prd"),
            "staging": ("*stag*", "*stg*"),
            "development": ("*dev*", "kind-*", "minikube", "k3d-*", "docker-desktop"),
        }
    )
    repositories: Mapping[str, Path] = field(
        default_factory=lambda: {name: Path.home() / "workspace" / name for name in ("k8s-deploy", "k8s")}
    )
    workspace: Path = field(default_factory=lambda: Path.home() / "workspace")
    ask: Sequence[str] = ("claude", "-p")
    keys_without_prefix: bool = True
    k9s_readonly: bool = True

    def stage(self, context: str) -> str:
        """The stage of a Kubernetes context by its name; empty where no pattern fits."""
        named = context.lower()
        return next((s for s in STAGES if any(fnmatchcase(named, p.lower()) for p in self.contexts.get(s, ()))), "")


def load() -> Settings:
    """The user's settings; `InvalidInput` with every mistake in the file."""
    path = config_dir() / "settings.yml"
    try:
        if not path.exists() or not path.read_text().strip():
            return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"use {path}", str(error), "mend or remove it") from error
    mistakes: list[Mistake] = []
    node = read(path, mistakes)
    given = _checked(node, mistakes) if node else {}
    if mistakes:
        raise InvalidInput(f"use {path}", "\n  ".join(map(str, mistakes)), f"it can hold: {', '.join(_READERS)}")
    return Settings(**given)


def _checked(node: Node, mistakes: list[Mistake]) -> dict[str, Any]:
    if not isinstance(node.value, dict):
        mistakes.append(Mistake(node.where, "is not a mapping of settings"))
        return {}
    found = {}
    for name, item in node.value.items():
        if name in _READERS:
            found[name] = _READERS[name](item, mistakes)
        else:
            mistakes.append(Mistake(item.where, f"{name} is no setting", did_you_mean(name, list(_READERS))))
    return found


def _folder(node: Node, mistakes: list[Mistake]) -> Path:
    if not isinstance(node.value, str):
        mistakes.append(Mistake(node.where, "is not a path"))
        return Path()
    return Path(node.value).expanduser()


def _folders(node: Node, mistakes: list[Mistake]) -> dict[str, Path]:
    if not isinstance(node.value, dict):
        mistakes.append(Mistake(node.where, "is not a mapping of names to paths"))
        return {}
    return {name: _folder(item, mistakes) for name, item in node.value.items()}


def _words(node: Node, mistakes: list[Mistake]) -> tuple[str, ...]:
    items = node.value if isinstance(node.value, list) else []
    if not items or not all(isinstance(item.value, str) for item in items):
        mistakes.append(Mistake(node.where, "is not a list of words"))
    return tuple(str(item.value) for item in items)


def _patterns(node: Node, mistakes: list[Mistake]) -> dict[str, tuple[str, ...]]:
    if not isinstance(node.value, dict):
        mistakes.append(Mistake(node.where, f"is not a mapping of {', '.join(STAGES)} to lists of patterns"))
        return {}
    for name, item in node.value.items():
        if name not in STAGES:
            mistakes.append(Mistake(item.where, f"{name} is no stage", did_you_mean(name, STAGES)))
    return {name: _words(item, mistakes) for name, item in node.value.items()}


def _switch(node: Node, mistakes: list[Mistake]) -> bool:
    known = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
    if not isinstance(node.value, str) or node.value.lower() not in known:
        mistakes.append(Mistake(node.where, "is neither true nor false"))
        return False
    return known[node.value.lower()]


_READERS = {
    "contexts": _patterns,
    "repositories": _folders,
    "workspace": _folder,
    "ask": _words,
    "keys_without_prefix": _switch,
    "k9s_readonly": _switch,
}
