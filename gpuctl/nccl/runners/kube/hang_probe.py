"""Shell program that the launcher runs on every worker at the limit: lists the ranks, and whether they do anything.

It runs as the user of the ranks, because /proc shows a user its own processes; an image may have no Python.
"""

from __future__ import annotations

LOOK = "gpuctl: look "
LOOKED = "gpuctl: looked"
# Seconds between two looks: a rank that waits for others polls all the time; an idle one takes no part in the test.
APART_S = 0.5
# Seconds for every worker to answer.
ANSWER_S = 8

# Arguments: host name, the run's mark in the environment, the program's name in the kernel.
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
