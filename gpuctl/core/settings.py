"""The user's settings: config_dir()/settings.yml, or the defaults below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from gpuctl.core.paths import config_dir
from gpuctl.core.strict_yaml import ANY_TEXT, SWITCHES, EmptyFile, Flag, ListOf, MappingOf, Parsed, Section, load_file

STAGES = ("production", "staging", "development")


@dataclass(frozen=True)
class Settings:
    """Settings of the workstation.

    `contexts`: stage -> shell patterns of Kubernetes context names; the first matching stage in the order of `STAGES`
    counts.
    `repositories`: window name -> folder of the repository it works in. `workspace`: where new windows start.
    `ask`: the command whose standard input receives the text of `gpuctl kube explain --ask` and `kube logs-ai --send`.
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
        """The stage of a Kubernetes context; "" if no pattern matches its name."""
        name = context.lower()
        return next((s for s in STAGES if any(fnmatchcase(name, p.lower()) for p in self.contexts.get(s, ()))), "")

    def k9s_is_readonly(self, context: str) -> bool:
        """True if k9s must not change objects of a context, "" for one that is not known."""
        return self.k9s_readonly or (bool(context) and self.stage(context) == "production")


_PATH = Parsed(lambda text: Path(text).expanduser(), "a path")
EMPTY = EmptyFile("settings file", "add a setting, or remove the file for the defaults")
_SWITCH = Flag(SWITCHES, any_case=True)
SCHEMA = Section(
    {
        "contexts": Section(dict.fromkeys(STAGES, ListOf(ANY_TEXT, "patterns"))),
        "repositories": MappingOf(ANY_TEXT, _PATH, may_be_empty=True),
        "workspace": _PATH,
        "ask": ListOf(ANY_TEXT, "arguments"),
        "keys_without_prefix": _SWITCH,
        "k9s_readonly": _SWITCH,
    },
    make=lambda values, _node, _at: Settings(**values),
)


def load() -> Settings:
    """Load the settings; `InvalidInput` with every mistake in the file."""
    path = config_dir() / "settings.yml"
    if not path.exists():
        return Settings()
    settings: Settings = load_file(path, SCHEMA, "use the settings", EMPTY, f"it can hold: {', '.join(SCHEMA.fields)}")
    return settings
