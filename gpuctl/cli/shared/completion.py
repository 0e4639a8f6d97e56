"""Shell completion of names: tools, tmux versions, templates and saves, Kubernetes contexts, explained names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

from gpuctl.core.errors import GpuctlError

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _of(names: Callable[[], Iterable[str]]) -> Completer:
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        try:
            return [name for name in names() if name.startswith(incomplete)]
        except (GpuctlError, OSError):  # a broken file is reported by the command itself
            return []

    return complete


def _tools() -> list[str]:
    from gpuctl.workstation.tools import names

    return names()


def _versions() -> list[str]:
    from gpuctl.tmux.versions.store import every

    return [version.name for version in every()]


def _versions_and_words() -> list[str]:
    return [*_versions(), "current", "newest"]


def _templates() -> list[str]:
    from gpuctl.tmux.templates import load_all

    return list(load_all())


def _saves() -> list[str]:
    from gpuctl.tmux.saving import saves

    return [save.when for save in saves()]


def _contexts() -> list[str]:
    from gpuctl.kube.contexts import names

    return names()


def explained(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete a name that can be explained, or a number after its kind ("xid 7")."""
    from gpuctl.workflows.explain import names

    words = context.params.get(parameter.name or "") or ()
    return _of(lambda: names(" ".join(words)))(context, parameter, incomplete)


tools, contexts = _of(_tools), _of(_contexts)
versions, versions_and_words = _of(_versions), _of(_versions_and_words)
templates, saves = _of(_templates), _of(_saves)
