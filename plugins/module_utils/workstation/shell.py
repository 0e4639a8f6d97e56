"""The marked lines in the user's shell files."""

from __future__ import annotations

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
_TMUX = """if [ -t 0 ] && [ -z "${TMUX-}${VSCODE_PID-}${INSIDE_EMACS-}" ] && command -v gpuctl >/dev/null; then
  gpuctl tmux launch
fi"""


def block(shell: str, folder: str, start_tmux: bool) -> str:
    """What we want in ~/.bashrc or ~/.zshrc; a bash that is not interactive has no use for completion."""
    lines = [BEGIN, _PATH.format(bin=folder)]
    if shell == "bash":
        lines += ["if [[ $- == *i* ]]; then", _BASH, *([_TMUX] if start_tmux else []), "fi"]
    else:
        lines += [_ZSH, *([_TMUX] if start_tmux else [])]
    return "\n".join([*lines, END]) + "\n"


def with_block(text: str, wanted: str) -> str:
    """The text with our block in it once: in its place where it has one, else at the end."""
    start, end = text.find(BEGIN), text.find(END)
    if start < 0 or end < start:
        return text + ("" if not text or text.endswith("\n") else "\n") + wanted
    after = end + len(END)
    return text[:start] + wanted + text[after + (text[after : after + 1] == "\n") :]
