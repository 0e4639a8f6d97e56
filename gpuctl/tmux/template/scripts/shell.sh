#!/bin/sh
# The kubectl smart shell of a pane; where gpuctl has none to give, the user's own shell.
program=${GPUCTL_PROGRAM:-gpuctl}
if command -v "$program" >/dev/null 2>&1; then
  tmux set-option -pu -t "$TMUX_PANE" @gpuctl_kubeconfig
  "$program" kube shell
  status=$?
  # A shell that has started says so with this option; it ends with the status of its last command.
  [ -z "$(tmux show-options -pqv -t "$TMUX_PANE" @gpuctl_kubeconfig)" ] || exit "$status"
  echo "gpuctl kube shell could not start (exit status $status): this is your own shell"
else
  echo "gpuctl is not on this PATH: this is your own shell, without the Kubernetes tools"
fi
exec "${SHELL:-/bin/sh}"
