"""Decide how an editor reaches a pod: by ssh, by its attach to containers, or by a forward to code-server. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from gpuctl.core.errors import GpuctlError

EditorName = Literal["cursor", "code", "nvim"]
TITLES: Mapping[EditorName, str] = {"cursor": "Cursor", "code": "VS Code", "nvim": "Neovim"}
# Extension that attaches to containers: https://code.visualstudio.com/docs/devcontainers/attach-container, and the
# description of Cursor's.
ATTACHES: Mapping[EditorName, str] = {
    "cursor": "anysphere.remote-containers",
    "code": "ms-vscode-remote.remote-containers",
}
# Prints what the plan needs, a line each. The identity is the same by exec and by ssh only inside one container.
IDENTITY = "cat /proc/sys/kernel/random/boot_id && readlink /proc/self/ns/pid && readlink /proc/self/ns/mnt"
PROBE = f"""
for p in nvim code-server; do command -v "$p" >/dev/null 2>&1 && echo "has $p"; done
echo "at $(pwd)"
( {IDENTITY} ) 2>/dev/null | while read -r l; do echo "identity $l"; done
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r n l r s rest; do echo "socket $l $s"; done
:"""
LISTENS = "0A"  # TCP_LISTEN of linux/include/net/tcp_states.h
IDENTITY_LINES = 3
_IDENTITY = re.compile(r"[0-9a-f-]{4,36}|(?:pid|mnt):\[\d{1,20}\]", re.ASCII)
_SOCKET = re.compile(r"[0-9A-F]{8,32}:([0-9A-F]{4}) " + LISTENS, re.ASCII)


@dataclass(frozen=True)
class EditRequest:
    """`path`: folder in the pod; "" for the container's current one. `ssh_host`: entry of ssh's configuration.

    `port`: port of code-server in the pod.
    """

    editor: EditorName
    pod: str
    container: str = ""
    path: str = ""
    ssh_host: str = ""
    port: int = 8080


@dataclass(frozen=True)
class Target:
    """A container of a pod."""

    context: str
    namespace: str
    pod: str
    container: str
    image: str = ""


@dataclass(frozen=True)
class PodView:
    """Answer of PROBE. `programs`: editors that the container has; `listening`: its TCP ports."""

    programs: frozenset[str]
    folder: str
    identity: tuple[str, ...]
    listening: frozenset[int]


@dataclass(frozen=True)
class Local:
    """`extensions`: of the installed editor; None without it. `ssh_host`: ssh's name of the pod, "" for `ssh_why`."""

    extensions: Sequence[str] | None
    ssh_host: str = ""
    ssh_why: str = ""


@dataclass(frozen=True)
class Plan:
    """`argv`: program to start; () for a forward to `port`. `why_not`: reasons against the methods before it."""

    method: Literal["ssh", "attach", "exec", "forward"]
    argv: tuple[str, ...]
    text: str
    port: int = 0
    why_not: tuple[str, ...] = ()


def parse(output: str) -> PodView:
    """Read the output of PROBE. The container made it: lines of any other form are left out."""
    rows = [line.split(" ", 1) for line in output.split("\n") if " " in line]
    sockets = [_SOCKET.fullmatch(text) for word, text in rows if word == "socket"]
    ports = {int(match[1], 16) for match in sockets if match}
    return PodView(
        frozenset(text for word, text in rows if word == "has"),
        next((text for word, text in rows if word == "at" and is_folder(text)), ""),
        tuple(text for word, text in rows if word == "identity" and _IDENTITY.fullmatch(text)),
        frozenset(ports),
    )


def is_folder(path: str) -> bool:
    """True for an absolute path without control characters: an editor takes no part of it for an option."""
    return path.startswith("/") and path.isprintable()


def leads_away(name: str, resolved: str) -> bool:
    """True if ssh's configuration has an entry for the name, by the output of `ssh -G`."""
    values = dict(re.findall(r"^(hostname|proxycommand|proxyjump) (.+)$", resolved, re.MULTILINE))
    by_proxy = {"proxyjump", "proxycommand"} & {key for key, value in values.items() if value != "none"}
    return bool(by_proxy) or values.get("hostname", name) != name


def is_same(view: PodView, by_ssh: str) -> bool:
    """True if the output of IDENTITY over ssh is the container's; an unknown identity is not the same."""
    return len(view.identity) == IDENTITY_LINES and tuple(by_ssh.split("\n")[:IDENTITY_LINES]) == view.identity


def choose(request: EditRequest, target: Target, view: PodView, local: Local) -> Plan:
    """The first method that works; `GpuctlError` with the reasons if none does."""
    editor, port, folder = request.editor, request.port, request.path or view.folder or "/"
    if not is_folder(folder):
        wrong = f"{folder!r} is no absolute path, or has control characters"
        raise GpuctlError(f"edit in {request.pod}", wrong, "name the folder with --path, such as /workspace")
    if editor == "nvim":
        return _in_terminal(target, view, folder)
    title, why_not = TITLES[editor], []
    if local.extensions is None:
        why_not.append(f"`{editor}` is not installed on this machine")
    elif local.ssh_host:
        argv = (editor, "--remote", f"ssh-remote+{local.ssh_host}", folder)
        return Plan("ssh", argv, f"{title} opens {folder} of {target.pod} by ssh: {local.ssh_host}")
    else:
        why_not.append(f"by ssh: {local.ssh_why}")
        if ATTACHES[editor] in {extension.lower() for extension in local.extensions}:
            address = uri(editor, target, folder)
            text = f"{title} attaches to the container {target.container} of {target.pod}, and opens {folder}"
            return Plan("attach", (editor, "--folder-uri", address), text, why_not=tuple(why_not))
        why_not.append(f"attach: {title} has no extension {ATTACHES[editor]}")
    if port in view.listening:
        listens = "code-server is installed and something" if "code-server" in view.programs else "something"
        text = f"port {port} of {target.pod}, where {listens} listens, is forwarded for a browser"
        return Plan("forward", (), text, port, tuple(why_not))
    missing = "is not installed in it" if "code-server" not in view.programs else f"does not listen on port {port}"
    why_not.append(f"forward: code-server {missing}")
    hint = f"{editor} --install-extension {ATTACHES[editor]}" if local.extensions is not None else f"install {title}"
    raise GpuctlError(f"open {title} on {target.pod}", "; ".join(why_not), hint)


def _in_terminal(target: Target, view: PodView, folder: str) -> Plan:
    if "nvim" not in view.programs:
        wrong = f"the container {target.container} has no nvim"
        raise GpuctlError(f"open Neovim on {target.pod}", wrong, "use an image with it, or --with code")
    argv = ("exec", "--stdin", "--tty", target.pod, "--container", target.container, "--", "nvim", folder)
    return Plan(
        "exec", argv, f"Neovim of the container {target.container} of {target.pod} opens {folder} in this terminal"
    )


def uri(editor: EditorName, target: Target, folder: str) -> str:
    """Address of a folder in a container, as the editor's extension reads it."""
    names = {"context": target.context, "podname": target.pod, "namespace": target.namespace, "name": target.container}
    if editor == "cursor":
        settings = json.dumps({"settingType": "pod", **names})
        return f"vscode-remote://k8s-container+{settings.encode().hex()}{quote(folder)}"
    listed = "+".join(f"{name}={quote(value, safe='')}" for name, value in {**names, "image": target.image}.items())
    return f"vscode-remote://k8s-container+{listed}{quote(folder)}"
