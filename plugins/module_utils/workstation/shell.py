"""The marked lines in the user's shell files."""

from __future__ import annotations

from typing import NamedTuple

from .model import Wrong

BEGIN = "# >>> gpuctl >>>"
END = "# <<< gpuctl <<<"

_PATH = 'case ":$PATH:" in *":{bin}:"*) ;; *) PATH="{bin}:$PATH" ;; esac'
# Completion is loaded when it is first asked for: a new shell must not wait for Python.
_BASH = """_gpuctl_load() {
  eval "$(_GPUCTL_COMPLETE=bash_source gpuctl 2>/dev/null)"
  return 124
}
complete -F _gpuctl_load gpuctl"""
_ZSH = """if (( $+functions[compdef] )); then
  _gpuctl_load() { eval "$(_GPUCTL_COMPLETE=zsh_source gpuctl 2>/dev/null)"; _gpuctl_completion "$@"; }
  compdef _gpuctl_load gpuctl
fi"""
# Not in an editor's terminal, nor in a shell that `gpuctl kube shell` started: it reads the file once more.
_TMUX = """if [ -t 0 ] && [ "${TERM_PROGRAM-}" != vscode ] &&
  [ -z "${TMUX-}${CURSOR_TRACE_ID-}${INSIDE_EMACS-}${GPUCTL_KUBECONFIG-}" ] && command -v gpuctl >/dev/null; then
  gpuctl tmux launch
fi"""


class _Mark(NamedTuple):
    """A line that is a marker: its number, from 1, and where it starts and ends in the text."""

    text: str
    number: int
    start: int
    end: int


def block(shell: str, folder: str, start_tmux: bool) -> str:
    """What we want in ~/.bashrc or ~/.zshrc; a bash that is not interactive has no use for completion."""
    lines = [BEGIN, _PATH.format(bin=folder)]
    if shell == "bash":
        lines += ["if [[ $- == *i* ]]; then", _BASH, *([_TMUX] if start_tmux else []), "fi"]
    else:
        lines += [_ZSH, *([_TMUX] if start_tmux else [])]
    return "\n".join([*lines, END]) + "\n"


def with_block(text: str, wanted: str) -> str:
    """The text with our block once: in its place where it has one, else at the end; `Wrong` as `without_block`."""
    found = _blocks(text)
    if not found:
        return text + ("" if not text or text.endswith("\n") else "\n") + wanted
    start, end = found[0]
    return text[:start] + wanted + without_block(text[end:])


def without_block(text: str) -> str:
    """The text that is the user's own; `Wrong` where a damaged marker leaves open which lines are ours."""
    for start, end in reversed(_blocks(text)):
        text = text[:start] + text[end:]
    return text


def _blocks(text: str) -> list[tuple[int, int]]:
    """Where each block of ours starts and ends."""
    marks, at = [], 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if line.strip() in (BEGIN, END):
            marks.append(_Mark(line.strip(), number, at, at + len(line)))
        at += len(line)
    return [_pair(*marks[i : i + 2]) for i in range(0, len(marks), 2)]


def _pair(first: _Mark, second: _Mark | None = None) -> tuple[int, int]:
    if first.text == BEGIN and second and second.text == END:
        return first.start, second.end
    lacks = "end" if first.text == BEGIN else "beginning"
    raise Wrong(
        f"line {first.number} ({first.text}) has no {lacks}: left alone; "
        "take out what is left of our lines, and run this again"
    )
