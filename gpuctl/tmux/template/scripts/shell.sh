#!/bin/sh
# Starts the kubectl smart shell of a pane, or the user's own shell if that fails: without a kubeconfig in a pane of a
# declared context, as the current one could be production.
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
if [ -n "${GPUCTL_KUBE_CONTEXT:-}" ]; then
  echo "it has no kubeconfig (KUBECONFIG=/dev/null), as only gpuctl can select this pane's context $GPUCTL_KUBE_CONTEXT"
  export KUBECONFIG=/dev/null
fi
exec "${SHELL:-/bin/sh}"
