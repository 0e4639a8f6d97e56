# shellcheck shell=bash
# The kubectl tools of the smart shell, for bash and zsh; sourced after the user's own start-up files.

# If the user's own files set another KUBECONFIG, this shell's copy is rebuilt from it.
if [ -n "${KUBECONFIG-}" ] && [ "$KUBECONFIG" != "$GPUCTL_KUBECONFIG" ] && [ "$KUBECONFIG" != "$GPUCTL_KUBE_FROM" ]; then
  "$GPUCTL_PROGRAM" kube remake "$GPUCTL_KUBECONFIG"
fi
export KUBECONFIG=$GPUCTL_KUBECONFIG
# Without the context that its pane was declared or saved with, the shell has none: another could be production.
if [ -n "${GPUCTL_KUBE_CONTEXT-}" ]; then
  IFS= read -r __gpuctl_kube_stage 2>/dev/null <"$GPUCTL_KUBECONFIG.prompt"
  [ "${__gpuctl_kube_stage-}" != none ] ||
    printf 'gpuctl: this pane belongs to the context %s, which the kubeconfig does not have: no context is selected\n  hint: kctx selects one\n' "$GPUCTL_KUBE_CONTEXT"
fi
# The context of a restored pane is for its first shell only.
unset GPUCTL_KUBE_CONTEXT GPUCTL_KUBE_NAMESPACE

unalias kubectl oc helm k kgp kgpa kd ke kdel kctx kns kpod 2>/dev/null
alias k=kubectl
alias kgp='kubectl get pods'
alias kgpa='kubectl get pods --all-namespaces'
alias kd='kubectl describe'
alias ke='kubectl edit'
alias kdel='kubectl delete'

# The wrappers of kubectl, oc and helm come first on the PATH, also after the user's files or hooks changed it.
function __gpuctl_kube_path {
  case "$PATH" in
  "$GPUCTL_KUBE_WRAPPERS":*) return ;;
  esac
  local rest=":$PATH:"
  rest=${rest//":$GPUCTL_KUBE_WRAPPERS:"/:}
  rest=${rest#:}
  PATH=$GPUCTL_KUBE_WRAPPERS:${rest%:}
}
__gpuctl_kube_path

function kctx {
  "$GPUCTL_PROGRAM" kube context "$@" || return
  : >|"$GPUCTL_KUBECONFIG.prompt"
}

function kns {
  "$GPUCTL_PROGRAM" kube namespace "$@" || return
  : >|"$GPUCTL_KUBECONFIG.prompt"
}

function kpod {
  case "${1-}" in
  exec) shift && "$GPUCTL_PROGRAM" kube pod shell --choose "$@" ;;
  logs | describe) "$GPUCTL_PROGRAM" kube pod "$1" --choose "${@:2}" ;;
  *) "$GPUCTL_PROGRAM" kube pod choose "$@" ;;
  esac
}

function kwatch-resources {
  "$GPUCTL_PROGRAM" kube top "$@"
}

function port-forward-hyperpod {
  "$GPUCTL_PROGRAM" kube forward -l app=hyperpod --from 8081 --to 8080 "$@"
}

# Reads the cached prompt. gpuctl is started only if the copy or the settings changed.
__gpuctl_kube_stage='' __gpuctl_kube_context='' __gpuctl_kube_namespace=''
function __gpuctl_kube_read {
  __gpuctl_kube_path
  local kept=$GPUCTL_KUBECONFIG.prompt
  [ "${KUBECONFIG-}" = "$__gpuctl_kube_published" ] || __gpuctl_kube_publish
  if [ "$KUBECONFIG" != "$GPUCTL_KUBECONFIG" ]; then
    __gpuctl_kube_stage=unknown __gpuctl_kube_context='unknown (KUBECONFIG was changed)' __gpuctl_kube_namespace=''
    return
  fi
  if [ ! -s "$kept" ] || [ "$KUBECONFIG" -nt "$kept" ] || [ "$GPUCTL_KUBE_SETTINGS" -nt "$kept" ]; then
    "$GPUCTL_PROGRAM" kube prompt "$kept" 2>/dev/null
  fi
  {
    IFS= read -r __gpuctl_kube_stage
    IFS= read -r __gpuctl_kube_context
    IFS= read -r __gpuctl_kube_namespace
  } 2>/dev/null <"$kept" || __gpuctl_kube_stage=unknown __gpuctl_kube_context=unknown __gpuctl_kube_namespace=''
}

# The status bar and the tmux keys use the pane's option: the files that kubectl would read here.
__gpuctl_kube_published=$GPUCTL_KUBECONFIG
function __gpuctl_kube_publish {
  local rest="${KUBECONFIG-}:" one='' all=''
  __gpuctl_kube_published=${KUBECONFIG-}
  while [ -n "$rest" ]; do
    one=${rest%%:*} rest=${rest#*:}
    case "$one" in
    '') continue ;;
    /*) ;;
    *) one=$PWD/$one ;;
    esac
    all=$all${all:+:}$one
  done
  [ -z "${TMUX_PANE-}" ] ||
    command tmux set-option -p -t "$TMUX_PANE" @gpuctl_kubeconfig "${all:-$HOME/.kube/config}" >/dev/null 2>&1
}

# The colour of the stage: production red, staging yellow, development green.
function __gpuctl_kube_colour {
  case "$__gpuctl_kube_stage" in
  production) __gpuctl_kube_colour='1;37;41' ;;
  staging) __gpuctl_kube_colour='1;33' ;;
  development) __gpuctl_kube_colour='1;32' ;;
  *) __gpuctl_kube_colour='2' ;;
  esac
}

# Records the typed commands for the tmux key that shows them; the file is removed with the shell.
function __gpuctl_kube_note {
  case "$1" in
  '' | ' '* | *$'\n'*) ;;
  *) printf '%s\n' "$1" >>"$GPUCTL_KUBECONFIG.commands" ;;
  esac
}

# The copy holds credentials: it is removed with its shell, after gpuctl has kept any additions.
function __gpuctl_kube_end {
  local name
  [ "$$" = "$__gpuctl_kube_shell" ] || return 0
  [ ! "$GPUCTL_KUBECONFIG" -nt "$GPUCTL_KUBECONFIG.from" ] || "$GPUCTL_PROGRAM" kube leave "$GPUCTL_KUBECONFIG"
  command rm -f -- "$GPUCTL_KUBECONFIG"
  for name in prompt commands chosen before from; do
    command rm -f -- "$GPUCTL_KUBECONFIG.$name"
  done
}
__gpuctl_kube_shell=$$
