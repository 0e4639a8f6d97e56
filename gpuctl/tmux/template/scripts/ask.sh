#!/bin/sh
# Runs a gpuctl command in a popup or window on behalf of a pane ($GPUCTL_PANE, else the active one). It stays open
# after an error, and with GPUCTL_STAY=yes also after success.
GPUCTL_PANE=${GPUCTL_PANE:-$(tmux display-message -p '#{pane_id}')}
export GPUCTL_PANE
# Windows set GPUCTL_STAY, popups do not. In a popup, which blocks tmux, gpuctl starts nothing that lasts.
if [ -z "${GPUCTL_STAY:-}" ]; then
  GPUCTL_POPUP=yes
  export GPUCTL_POPUP
fi
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
case "$status ${GPUCTL_STAY:-no}" in
'0 no' | 130*) exit ;;
esac
printf '\npress any key to close\n'
stty -icanon -echo min 1
dd bs=16 count=1 >/dev/null 2>&1
exit "$status"
