#!/bin/sh
# Opens a window for the selected pod of a pane. Usage: pod.sh forward|logs|shell PANE SESSION
stay=no
[ "$1" != logs ] || stay=yes # the log of a pod that has ended is to be read
exec tmux new-window -t "$3:" -n "$1" -e "GPUCTL_PANE=$2" -e "GPUCTL_STAY=$stay" sh "$(dirname "$0")/ask.sh" kube pod "$1"
