"""The marked block in the user's shell files."""

from __future__ import annotations

from collections.abc import Collection
from difflib import SequenceMatcher
from typing import NamedTuple

from .model import WorkstationError

BEGIN = "# >>> gpuctl >>>"
END = "# <<< gpuctl <<<"

_PATH = 'case ":$PATH:" in *":{bin}:"*) ;; *) PATH="{bin}:$PATH" ;; esac'
# Completion is loaded on first use: a new shell must not wait for Python.
_BASH = """_gpuctl_load() {
  eval "$(_GPUCTL_COMPLETE=bash_source gpuctl 2>/dev/null)"
  return 124
}
complete -F _gpuctl_load gpuctl"""
_ZSH = """if (( $+functions[compdef] )); then
  _gpuctl_load() { eval "$(_GPUCTL_COMPLETE=zsh_source gpuctl 2>/dev/null)"; _gpuctl_completion "$@"; }
  compdef _gpuctl_load gpuctl
fi"""
_FISH_PATH = 'contains -- "{bin}" $PATH; or set --export PATH "{bin}" $PATH'
# Its own completion replaces this one on first use.
_FISH = """  function __gpuctl_load
    complete --erase --command gpuctl
    env _GPUCTL_COMPLETE=fish_source gpuctl 2>/dev/null | source
    functions --query _gpuctl_completion; and _gpuctl_completion
  end
  complete --no-files --command gpuctl --arguments '(__gpuctl_load)'"""
_FISH_TMUX = """  if isatty stdin; and test "$TERM_PROGRAM" != vscode; and type --query gpuctl
    if test -z "$TMUX$CURSOR_TRACE_ID$INSIDE_EMACS$GPUCTL_KUBECONFIG"
      gpuctl tmux launch
    end
  end"""
# Not in an editor's terminal, and not in a `gpuctl kube shell`, which reads the file again.
_TMUX = """if [ -t 0 ] && [ "${TERM_PROGRAM-}" != vscode ] &&
  [ -z "${TMUX-}${CURSOR_TRACE_ID-}${INSIDE_EMACS-}${GPUCTL_KUBECONFIG-}" ] && command -v gpuctl >/dev/null; then
  gpuctl tmux launch
fi"""


class _Mark(NamedTuple):
    """A marker line: its number (from 1) and its start and end in the text."""

    text: str
    number: int
    start: int
    end: int


def block(shell: str, folder: str, start_tmux: bool) -> str:
    """Return the block for the start-up file of bash, zsh or fish; a non-interactive shell needs no completion."""
    if shell == "fish":
        interactive = ["if status is-interactive", _FISH, *([_FISH_TMUX] if start_tmux else []), "end"]
        return "\n".join([BEGIN, _FISH_PATH.format(bin=folder), *interactive, END]) + "\n"
    lines = [BEGIN, _PATH.format(bin=folder)]
    if shell == "bash":
        lines += ["if [[ $- == *i* ]]; then", _BASH, *([_TMUX] if start_tmux else []), "fi"]
    else:
        lines += [_ZSH, *([_TMUX] if start_tmux else [])]
    return "\n".join([*lines, END]) + "\n"


def with_block(text: str, block_text: str, written: Collection[str] = ()) -> str:
    """Return the text with our block exactly once: in its present place, else at the end.

    Lines between the markers that are in none of the blocks `written` before are the user's: they move below the block.
    `WorkstationError` as from `without_block`.
    """
    spans = _blocks(text)
    if not spans:
        return text + ("" if not text or text.endswith("\n") else "\n") + block_text
    start, end = spans[0]
    users = "".join(lines_between_markers(text[start:end], [*written, block_text])) if written else ""
    return text[:start] + block_text + users + without_block(text[end:], written)


def without_block(text: str, written: Collection[str] = ()) -> str:
    """Return the text without our blocks; `WorkstationError` if a damaged marker leaves open which lines are ours.

    Lines between the markers that are in none of the blocks `written` stay; if `written` is empty, whole blocks go.
    """
    for start, end in reversed(_blocks(text)):
        users = "".join(lines_between_markers(text[start:end], written)) if written else ""
        text = text[:start] + users + text[end:]
    return text


def lines_between_markers(text: str, written: Collection[str]) -> list[str]:
    """List lines between our markers that others wrote, compared with the most similar block in `written`."""
    return [line for start, end in _blocks(text) for line in _foreign(text[start:end], written)]


def _foreign(block_text: str, written: Collection[str]) -> list[str]:
    lines = block_text.splitlines(keepends=True)
    return min((_inserted(ours.splitlines(), lines) for ours in written), key=len, default=lines[1:-1])


def _inserted(ours: list[str], lines: list[str]) -> list[str]:
    # In sequence, not as a set: `fi` may be a line of ours and of the user's.
    matcher = SequenceMatcher(None, [line.strip() for line in ours], [line.strip() for line in lines], autojunk=False)
    added = [lines[j1:j2] for tag, _, _, j1, j2 in matcher.get_opcodes() if tag in ("insert", "replace")]
    return [line for run in added for line in run if line.strip()]


def _blocks(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each marked block."""
    marks, position = [], 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if line.strip() in (BEGIN, END):
            marks.append(_Mark(line.strip(), number, position, position + len(line)))
        position += len(line)
    return [_pair(*marks[i : i + 2]) for i in range(0, len(marks), 2)]


def _pair(first: _Mark, second: _Mark | None = None) -> tuple[int, int]:
    if first.text == BEGIN and second and second.text == END:
        return first.start, second.end
    lacks = "end" if first.text == BEGIN else "beginning"
    raise WorkstationError(
        f"line {first.number} ({first.text}) has no matching {lacks}: left alone; "
        "remove the rest of our lines, and run this again"
    )
