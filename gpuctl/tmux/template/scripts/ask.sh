#!/bin/sh
# Runs a gpuctl command in a popup or window on behalf of a pane ($GPUCTL_PANE, else the active one).
GPUCTL_PANE=${GPUCTL_PANE:-$(tmux display-message -p '#{pane_id}')}
export GPUCTL_PANE
config=$(tmux show-options -pqv -t "$GPUCTL_PANE" @gpuctl_kubeconfig 2>/dev/null)
if [ -n "$config" ]; then
  KUBECONFIG=$config
  export KUBECONFIG
fi
program=${GPUCTL_PROGRAM:-gpuctl}
if command -v "$program" >/dev/null 2>&1; then
  "$program" "$@"
else
  echo "gpuctl is not on this PATH: $PATH"
  false
fi
status=$?
case $status in
0 | 130) exit ;;
esac
printf '\npress any key to close\n'
stty -icanon -echo min 1
dd bs=16 count=1 >/dev/null 2>&1
exit "$status"
