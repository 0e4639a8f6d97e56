"""Redraw the resources of a namespace at an interval."""

from __future__ import annotations

import shutil
import sys
import time

from gpuctl.edges.kube.kubectl import Kubectl

KINDS = "pods,deployments,statefulsets,daemonsets,jobs,services,persistentvolumeclaims"


def page(kube: Kubectl) -> str:
    """Return the resources as text, or the error."""
    code, out, err = kube.try_to("get", KINDS, "-o", "wide", "--request-timeout=10s")
    return f"unknown: {err.strip()}\n" if code else out or f"nothing in the namespace {kube.namespace}\n"


def watch(kube: Kubectl, every: float) -> None:
    """Redraw until Ctrl-C; without a terminal, print once."""
    if not sys.stdout.isatty():
        sys.stdout.write(page(kube))
        return
    while True:
        text = page(kube)
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
