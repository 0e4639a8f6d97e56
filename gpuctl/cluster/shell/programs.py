"""Shell programs that wrap a user's command in a pod; any image with sh and cat will do."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

# Environment variable of every process of a command, by which they are found again.
MARK = "GPUCTL_SHELL"

# As the pod's start script: the rank, and /workspace. Without arguments a shell, bash if available.
ENTER = f"""
export {MARK}="$1"
shift
[ ! -r /run/gpuctl/env ] || . /run/gpuctl/env
cd /workspace || echo "gpuctl: there is no /workspace here" >&2
[ $# = 0 ] || exec "$@"
if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi
"""
TOGETHER = f"exec 2>&1\n{ENTER}"

# Ends a command whose connection broke, with all that it started. Says whether the command itself was still there, and
# how many of all that are left; nothing where it cannot look. Where the command itself has ended (what the runtime
# starts in a container has no parent there), what it left in the background was meant to stay.
END = f"""
exec 2>/dev/null
command -v cat >/dev/null && [ -r /proc/self/environ ] || exit 1
marked() {{
  for each in /proc/[0-9]*; do
    case $(cat "$each/environ") in *"{MARK}=$1"*) echo "${{each#/proc/}}" ;; esac
  done
}}
begun() {{
  for pid in $(marked "$1"); do
    read -r stat <"/proc/$pid/stat" || continue
    set -- "$1" ${{stat##*) }}
    [ "$3" != 0 ] || echo "$pid"
  done
}}
first=$(begun "$1")
[ -n "$first" ] || {{ echo 0 0; exit; }}
all=$(marked "$1")
for signal in HUP TERM KILL KILL; do
  for pid in $all; do kill -s $signal "$pid"; done
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    all=$(marked "$1")
    [ -n "$all" ] || {{ echo 1 0; exit; }}
    sleep 0.1 || sleep 1
  done
done
set -- $all
echo 1 $#
"""


def mark() -> str:
    """A unique name for one command."""
    return secrets.token_hex(8)


def enter(marked: str, argv: Sequence[str], together: bool = False) -> list[str]:
    """The command line in the pod; `together`: standard error goes to standard output."""
    return ["sh", "-c", TOGETHER if together else ENTER, "sh", marked, *argv]


def end(marked: str) -> list[str]:
    return ["sh", "-c", END, "sh", marked]
