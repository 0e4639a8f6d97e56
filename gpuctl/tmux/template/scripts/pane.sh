#!/bin/sh
# Runs the program of a pane, then leaves a shell. Usage: pane.sh INSTALL PROGRAM [WORD...]
install=$1
shift
# While the program runs, or waits to be installed, a restore starts it again.
tmux set-option -p -t "$TMUX_PANE" @gpuctl_run "$GPUCTL_RUN"
unset GPUCTL_RUN
gpuctl=${GPUCTL_PROGRAM:-gpuctl}
command -v "$gpuctl" >/dev/null 2>&1 || gpuctl=''
if [ -z "$gpuctl" ] && [ -n "${GPUCTL_KUBE_CONTEXT:-}" ]; then
  # The program would use the current context, which could be production.
  echo "gpuctl is not on this PATH: $1 has no kubeconfig (KUBECONFIG=/dev/null) instead of the context $GPUCTL_KUBE_CONTEXT"
  export KUBECONFIG=/dev/null
fi
if command -v "$1" >/dev/null 2>&1; then
  # With job control the program is the pane's foreground job, whose name tmux shows.
  trap : INT
  set -m 2>/dev/null
  # With its own copy of the kubeconfig, as each smart shell has.
  ${gpuctl:+"$gpuctl" kube run --} "$@"
  status=$?
  set +m 2>/dev/null
  trap - INT
  tmux set-option -pu -t "$TMUX_PANE" @gpuctl_run
  printf '%s ended (exit status %s); start it again with: %s\n' "$1" "$status" "$*"
else
  printf '%s is not installed.\n' "$1"
  printf '  install it:   %s\n' "${install:-gpuctl bootstrap laptop}"
  printf '  then run it:  %s\n' "$*"
fi
exec sh "$(dirname "$0")/shell.sh"
