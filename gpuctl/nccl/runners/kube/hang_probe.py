"""What the launcher runs on every worker at the limit: which ranks are there, and whether they do anything.

Plain shell, as the ranks' own user: an image may have no Python, and /proc shows a user its own processes.
"""

from __future__ import annotations

LOOK = "gpuctl: look "
LOOKED = "gpuctl: looked"
# A rank that waits for others polls all the time; one that did nothing for so long takes no part.
APART_S = 0.5
# Until every worker has answered.
ANSWER_S = 8

# Its arguments: the host's name, the run's mark in the environment, the program's name as the kernel keeps it.
PROGRAM = f"""
host=$1 mark=$2 name=$3
tell() {{
  for folder in /proc/[0-9]*; do
    {{ read -r comm < "$folder/comm"; }} 2>/dev/null || continue
    [ "$comm" = "$name" ] || continue
    own=$(tr '\\0' '\\n' 2>/dev/null < "$folder/environ") || continue
    case "
$own
" in *"
$mark
"*) ;; *) continue ;; esac
    pid=${{folder#/proc/}}
    rank=$(printf '%s\\n' "$own" | sed -n -e 's/^OMPI_COMM_WORLD_RANK=//p' -e 's/^PMIX_RANK=//p' | head -n 1)
    stat=$(cat "$folder/task/$pid/stat" 2>/dev/null) || continue
    switches=$(sed -n 's/.*ctxt_switches:[^0-9]*//p' "$folder/task/$pid/status" 2>/dev/null | tr '\\n' ',')
    set -- ${{stat##*) }}
    echo "{LOOK}$host $pass $pid $1 ${{12}},${{13}},$switches $rank"
  done
}}
pass=0; tell
sleep {APART_S}
pass=1; tell
echo "{LOOK}$host end"
"""
