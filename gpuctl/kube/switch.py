"""Switch the context or namespace of this shell, in its private kubeconfig only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpuctl.core.errors import InvalidInput
from gpuctl.core.paths import write_atomically
from gpuctl.core.strict_yaml import did_you_mean
from gpuctl.edges.kube import config
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.edges.programs import gist
from gpuctl.kube import private_kubeconfig


def private_copy() -> Path:
    """Return this shell's private kubeconfig; `InvalidInput` if it has none, as a switch would affect every shell."""
    paths = config.files()
    if not private_kubeconfig.is_private(paths):
        wrong = "this shell has no private kubeconfig, so the switch would affect every other shell"
        raise InvalidInput("switch", wrong, "start a shell with `gpuctl kube shell`")
    return paths[0]


def to_context(name: str) -> str:
    """Switch to a context ("-" for the previous one) and return its name."""
    path = private_copy()
    now = config.current(path)
    name = _previous_context(path, now.name if now else "") if name == "-" else name
    contexts = [c.name for c in config.contexts(path)]
    if name not in contexts:
        raise InvalidInput(f"switch to the context {name!r}", "there is no such context", did_you_mean(name, contexts))
    Kubectl().ask(f"switch to the context {name}", "config", "use-context", name)
    if now and now.name != name:
        _store_previous(path, context=now.name)
    return name


def to_namespace(name: str, force: bool = False) -> str:
    """Switch the current context's namespace ("-" for the previous one) and return its name.

    It must exist, if the cluster permits the check.
    """
    path = private_copy()
    now = config.current(path)
    if now is None:
        raise InvalidInput("switch the namespace", "no context is selected", "select one with `kctx`")
    if name == "-":
        name = _previous_namespace(path, now)
    if not force:
        code, _, err = Kubectl().try_to("get", "namespace", name, "-o", "name", "--request-timeout=10s")
        if code and "NotFound" in err:
            raise InvalidInput(
                f"switch to the namespace {name!r}", f"{now.name} has none of that name", "`kns` shows them"
            )
        if code and "Forbidden" not in err:
            hint = "`--force` switches without this check"
            raise InvalidInput(f"switch to the namespace {name!r}", gist(err), hint)
    doing = f"switch to the namespace {name}"
    Kubectl().ask(doing, "config", "set-context", now.name, f"--namespace={name}")
    if now.namespace != name:
        _store_previous(path, namespaces={now.name: now.namespace})
    return name


@dataclass(frozen=True)
class _Previous:
    """Values before the last switches: the context, and the namespace of each context."""

    context: str = ""
    namespaces: Mapping[str, str] = field(default_factory=dict)


def _read_previous(path: Path) -> _Previous:
    try:
        return _Previous(**json.loads(_beside(path).read_text()))
    except (OSError, ValueError, TypeError):
        return _Previous()


def _beside(path: Path) -> Path:
    return Path(f"{path}.before")


def _store_previous(path: Path, context: str = "", namespaces: Mapping[str, str] | None = None) -> None:
    before = _read_previous(path)
    after = _Previous(context or before.context, {**before.namespaces, **(namespaces or {})})
    write_atomically(_beside(path), json.dumps(asdict(after)) + "\n")


def _previous_context(path: Path, current: str) -> str:
    if name := _read_previous(path).context:
        return name
    raise InvalidInput(
        "switch to the previous context", f"{current or 'this shell'} is the first context of this shell"
    )


def _previous_namespace(path: Path, current: config.Context) -> str:
    if name := _read_previous(path).namespaces.get(current.name):
        return name
    wrong = f"{current.namespace} is the first namespace of this shell in {current.name}"
    raise InvalidInput("switch to the previous namespace", wrong)
