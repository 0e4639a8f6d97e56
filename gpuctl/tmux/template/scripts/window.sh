#!/bin/sh
# Runs a gpuctl kube command on behalf of a pane in a window of its own. Usage: window.sh NAME PANE SESSION WORD...
name=$1 pane=$2 session=$3
shift 3
stay=no
[ "$name" != logs ] || stay=yes # the log of a pod that has ended is to be read
exec tmux new-window -t "$session:" -n "$name" -e "GPUCTL_PANE=$pane" -e "GPUCTL_STAY=$stay" \
  sh "$(dirname "$0")/ask.sh" kube "$@"
