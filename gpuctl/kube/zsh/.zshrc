# zsh reads this instead of the user's ~/.zshrc, which comes first; then the kubectl tools.
if [[ -n $GPUCTL_ZDOTDIR ]]; then
  ZDOTDIR=$GPUCTL_ZDOTDIR
else
  unset ZDOTDIR
fi
unset GPUCTL_ZDOTDIR
# A system-wide file may have placed the history in this folder.
[[ ${HISTFILE-} != $GPUCTL_KUBE_FOLDER/* ]] || HISTFILE=${ZDOTDIR:-$HOME}/.zsh_history
# Of a login shell, its files, too: the tools come after the last of them.
__gpuctl_kube_files=({/etc,/etc/zsh}/zprofile ${ZDOTDIR:-$HOME}/.zprofile)
[[ -n $GPUCTL_KUBE_LOGIN ]] || __gpuctl_kube_files=()
for __gpuctl_kube_file in $__gpuctl_kube_files; do [[ ! -r $__gpuctl_kube_file ]] || source $__gpuctl_kube_file; done
[[ ! -f ${ZDOTDIR:-$HOME}/.zshrc ]] || source ${ZDOTDIR:-$HOME}/.zshrc
__gpuctl_kube_files=({/etc,/etc/zsh}/zlogin ${ZDOTDIR:-$HOME}/.zlogin)
[[ -n $GPUCTL_KUBE_LOGIN ]] || __gpuctl_kube_files=()
for __gpuctl_kube_file in $__gpuctl_kube_files; do [[ ! -r $__gpuctl_kube_file ]] || source $__gpuctl_kube_file; done
unset GPUCTL_KUBE_LOGIN __gpuctl_kube_files __gpuctl_kube_file
source $GPUCTL_KUBE_FOLDER/shell.sh

typeset -g __gpuctl_kube_before=
function __gpuctl_kube_prompt {
  __gpuctl_kube_read
  __gpuctl_kube_colour
  local style
  case $__gpuctl_kube_stage in
    production) style='%K{red}%F{white}%B' ;;
    staging) style='%F{yellow}%B' ;;
    development) style='%F{green}%B' ;;
  esac
  local own=${PROMPT#$__gpuctl_kube_before}
  # gpuctl has replaced special characters, except for the percent sign.
  local text="$__gpuctl_kube_context${__gpuctl_kube_namespace:+ $__gpuctl_kube_namespace}"
  __gpuctl_kube_before="$style${text//\%/%%}%b%f%k "
  PROMPT=$__gpuctl_kube_before$own
}
function __gpuctl_kube_typed { __gpuctl_kube_note "${1%$'\n'}" }
autoload -Uz add-zsh-hook
add-zsh-hook precmd __gpuctl_kube_prompt
add-zsh-hook preexec __gpuctl_kube_typed
add-zsh-hook zshexit __gpuctl_kube_end

# The user's own start-up files may have done this already. zsh completes an alias as its expansion.
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i -D }
[[ ! -r $GPUCTL_KUBE_COMPLETION ]] || source $GPUCTL_KUBE_COMPLETION
function __gpuctl_kube_contexts { compadd -- ${(f)"$(command kubectl config get-contexts -o name 2>/dev/null)"} }
function __gpuctl_kube_namespaces {
  compadd -- ${${(f)"$(command kubectl get namespaces -o name --request-timeout=3s 2>/dev/null)"}#namespace/}
}
compdef __gpuctl_kube_contexts kctx
compdef __gpuctl_kube_namespaces kns kwatch-resources
