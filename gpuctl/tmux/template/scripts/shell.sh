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
shell=${SHELL:-/bin/sh}
[ -n "${GPUCTL_KUBE_CONTEXT:-}" ] || exec "$shell"

echo "it has no kubeconfig (KUBECONFIG=/dev/null), as only gpuctl can select this pane's context $GPUCTL_KUBE_CONTEXT"
export KUBECONFIG=/dev/null
# The shell's own start-up files may set KUBECONFIG, too: what they set is taken back after them.
case ${shell##*/} in
bash) exec "$shell" --rcfile "$(dirname "$0")/no_context.sh" -i ;;
fish) exec "$shell" -i -C 'set -gx KUBECONFIG /dev/null' ;;
zsh)
  # The system's zshenv, which zsh always reads, may name another folder for all other files, or a kubeconfig.
  # shellcheck disable=SC2016 # zsh expands them
  after=$(ZDOTDIR=/dev/null/gpuctl "$shell" -f -c 'print -r -- "$ZDOTDIR $KUBECONFIG"' </dev/null 2>/dev/null | tail -n 1)
  # It reads its files from a folder; these remove it.
  if [ "${after%% *}" = /dev/null/gpuctl ] && folder=$(mktemp -d); then
    GPUCTL_ZDOTDIR=${ZDOTDIR:-$HOME}
    ZDOTDIR=$folder
    export GPUCTL_ZDOTDIR ZDOTDIR
    cat >"$folder/.zshenv" <<'ZSHENV'
__gpuctl_folder=$ZDOTDIR
ZDOTDIR=$GPUCTL_ZDOTDIR
[[ ! -f $ZDOTDIR/.zshenv ]] || source $ZDOTDIR/.zshenv
GPUCTL_ZDOTDIR=$ZDOTDIR ZDOTDIR=$__gpuctl_folder
# Without the option rcs, zsh reads no further file.
[[ -o rcs ]] || { command rm -rf -- $__gpuctl_folder; ZDOTDIR=$GPUCTL_ZDOTDIR KUBECONFIG=/dev/null; }
ZSHENV
    cat >"$folder/.zshrc" <<'ZSHRC'
ZDOTDIR=$GPUCTL_ZDOTDIR
command rm -rf -- $__gpuctl_folder
unset GPUCTL_ZDOTDIR __gpuctl_folder
[[ ! -f $ZDOTDIR/.zshrc ]] || source $ZDOTDIR/.zshrc
export KUBECONFIG=/dev/null
ZSHRC
    exec "$shell" -i
  fi
  case $after in
  *" /dev/null")
    echo "it reads no start-up files of yours: the system's zshenv sets ZDOTDIR, or a temporary folder cannot be made"
    exec "$shell" -f -i
    ;;
  *)
    echo "it is /bin/sh, as the system's zshenv sets KUBECONFIG"
    ENV=/dev/null exec /bin/sh -i
    ;;
  esac
  ;;
# An empty ENV is ~/.mkshrc for mksh.
sh | dash | ash | ksh | mksh) ENV=/dev/null exec "$shell" -i ;;
*)
  echo "it is /bin/sh, as the start-up files of $shell could set another kubeconfig"
  ENV=/dev/null exec /bin/sh -i
  ;;
esac
