#!/bin/sh
# Starts the kubectl smart shell of a pane, or the user's own shell if that fails.
program=${GPUCTL_PROGRAM:-gpuctl}
if command -v "$program" >/dev/null 2>&1; then
  tmux set-option -pu -t "$TMUX_PANE" @gpuctl_kubeconfig
  "$program" kube shell
  status=$?
  # The smart shell sets this option when it has started; it exits with the status of its last command.
  [ -z "$(tmux show-options -pqv -t "$TMUX_PANE" @gpuctl_kubeconfig)" ] || exit "$status"
  echo "gpuctl kube shell could not start (exit status $status): this is your own shell"
else
  echo "gpuctl is not on this PATH: this is your own shell, without the Kubernetes tools"
fi
exec "${SHELL:-/bin/sh}"
