# shellcheck shell=bash
# bash reads this instead of ~/.bashrc in the smart shell: the user's file first, then the kubectl tools.
# Of a login shell, its files: bash itself would read them only instead of this one.
if [ -n "${GPUCTL_KUBE_LOGIN-}" ]; then
  unset GPUCTL_KUBE_LOGIN
  for __gpuctl_file in ~/.bash_profile ~/.bash_login ~/.profile; do
    [ ! -r "$__gpuctl_file" ] || break
  done
  # shellcheck source=/dev/null
  [ ! -r /etc/profile ] || . /etc/profile
  # shellcheck source=/dev/null
  [ ! -r "$__gpuctl_file" ] || . "$__gpuctl_file"
  unset __gpuctl_file
else
  # shellcheck source=/dev/null
  [ ! -f ~/.bashrc ] || . ~/.bashrc
fi
# shellcheck source=gpuctl/kube/shell.sh
. "$GPUCTL_KUBE_FOLDER/shell.sh"

__gpuctl_kube_before='' __gpuctl_kube_number=''
function __gpuctl_kube_prompt {
  local line own
  __gpuctl_kube_read
  __gpuctl_kube_colour
  # PS1 may have been changed since: only our own prefix is removed.
  own=${PS1#"$__gpuctl_kube_before"}
  # shellcheck disable=SC2016 # bash expands the names when it prints the prompt, and does not interpret their values
  __gpuctl_kube_before='\[\e['$__gpuctl_kube_colour'm\]${__gpuctl_kube_context}${__gpuctl_kube_namespace:+ ${__gpuctl_kube_namespace}}\[\e[0m\] '
  shopt -q promptvars || __gpuctl_kube_before='\[\e['$__gpuctl_kube_colour'm\]'"$__gpuctl_kube_context $__gpuctl_kube_namespace"'\[\e[0m\] '
  PS1=$__gpuctl_kube_before$own
  line=$(HISTTIMEFORMAT='' builtin history 1)
  line=${line#"${line%%[![:space:]]*}"}
  # At the first prompt the history is that of other shells: only later entries were typed here.
  if [ -n "$__gpuctl_kube_number" ] && [ "${line%%[[:space:]]*}" != "$__gpuctl_kube_number" ]; then
    own=${line#*[[:space:]]}
    __gpuctl_kube_note "${own#"${own%%[![:space:]]*}"}"
  fi
  __gpuctl_kube_number=${line%%[[:space:]]*}
  __gpuctl_kube_number=${__gpuctl_kube_number:-none}
}
# On a separate line, as the existing text may end in a semicolon or a comment. Before 5.1, bash runs no array.
if [[ $(declare -p PROMPT_COMMAND 2>/dev/null) == 'declare -a'* ]] && ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)); then
  PROMPT_COMMAND+=(__gpuctl_kube_prompt)
else
  # shellcheck disable=SC2128,SC2178 # not an array, or one of which bash runs only the first element
  PROMPT_COMMAND="${PROMPT_COMMAND:+$PROMPT_COMMAND$'\n'}__gpuctl_kube_prompt"
fi
[ -n "$(trap -p EXIT)" ] || trap __gpuctl_kube_end EXIT

# Completion of aliases needs bash 4; the bash of macOS is older.
[ "${BASH_VERSINFO[0]}" -ge 4 ] || return 0
if ! declare -F _get_comp_words_by_ref >/dev/null; then
  for __gpuctl_file in /usr/share/bash-completion/bash_completion /opt/homebrew/etc/profile.d/bash_completion.sh /usr/local/etc/profile.d/bash_completion.sh; do
    # shellcheck source=/dev/null
    [ ! -r "$__gpuctl_file" ] || { . "$__gpuctl_file" && break; }
  done
  unset __gpuctl_file
fi
# shellcheck source=/dev/null
[ ! -r "$GPUCTL_KUBE_COMPLETION" ] || . "$GPUCTL_KUBE_COMPLETION"

# kubectl's completion sees the expanded alias.
function __gpuctl_kube_complete {
  local whole=${BASH_ALIASES[$1]} words
  read -ra words <<<"$whole"
  COMP_LINE=$whole${COMP_LINE#"$1"}
  COMP_POINT=$((COMP_POINT + ${#whole} - ${#1}))
  COMP_WORDS=("${words[@]}" "${COMP_WORDS[@]:1}")
  COMP_CWORD=$((COMP_CWORD + ${#words[@]} - 1))
  __start_kubectl
}
if declare -F __start_kubectl >/dev/null; then
  complete -o default -o nospace -F __gpuctl_kube_complete k kgp kgpa kd ke kdel
fi

function __gpuctl_kube_names {
  local kind=$1 found
  if [ "$kind" = context ]; then
    found=$(command kubectl config get-contexts -o name 2>/dev/null)
  else
    found=$(command kubectl get namespaces -o name --request-timeout=3s 2>/dev/null)
  fi
  mapfile -t COMPREPLY < <(compgen -W "${found//namespace\//}" -- "${COMP_WORDS[COMP_CWORD]}")
}
function __gpuctl_kube_contexts { __gpuctl_kube_names context; }
function __gpuctl_kube_namespaces { __gpuctl_kube_names namespace; }
complete -F __gpuctl_kube_contexts kctx
complete -F __gpuctl_kube_namespaces kns kwatch-resources
