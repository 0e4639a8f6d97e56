#!/bin/sh
# Opens a window for the selected pod of a pane. Usage: pod.sh forward|logs|shell PANE SESSION
exec tmux new-window -t "$3:" -n "$1" -e "GPUCTL_PANE=$2" sh "$(dirname "$0")/ask.sh" kube pod "$1"
