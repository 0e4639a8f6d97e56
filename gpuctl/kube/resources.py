"""Redraw a page about a namespace at an interval; one page lists its resources."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.edges.kube.kubectl import Kubectl

KINDS = "pods,deployments,statefulsets,daemonsets,jobs,services,persistentvolumeclaims"


def page(kube: Kubectl) -> str:
    """Return the resources as text."""
    doing = f"list the resources of the namespace {kube.namespace}"
    listed = kube.ask(doing, "get", KINDS, "-o", "wide", "--request-timeout=10s")
    return listed or f"nothing in the namespace {kube.namespace}\n"


def watch(kube: Kubectl, every: float, page: Callable[[Kubectl], str] = page) -> None:
    """Redraw a page until Ctrl-C; a page that could not be read is unknown. Without a terminal, print it once."""
    if not sys.stdout.isatty():
        sys.stdout.write(page(kube))
        return
    while True:
        try:
            text = page(kube)
        except InvalidInput:
            raise
        except GpuctlError as error:
            text = f"unknown: {error.wrong}\n"
        width, height = shutil.get_terminal_size()
        head = f"{kube.context} {kube.namespace}  {time.strftime('%H:%M:%S')}  every {every:g} s, Ctrl-C ends"
        sys.stdout.write(
            "\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in fit([head, *text.splitlines()], width, height))
        )
        sys.stdout.write("\x1b[J")
        sys.stdout.flush()
        time.sleep(every)


def fit(lines: list[str], width: int, height: int) -> list[str]:
    """Cut the lines to the screen size; the last line counts the hidden ones."""
    most = max(2, height - 1)
    shown = lines if len(lines) <= most else [*lines[: most - 1], f"… {len(lines) - most + 1} more lines"]
    return [line[: width - 1] for line in shown]
