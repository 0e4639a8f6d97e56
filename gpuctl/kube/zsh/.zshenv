# zsh reads this first, in place of the user's own ~/.zshenv, which follows.
[[ ! -f ${GPUCTL_ZDOTDIR:-$HOME}/.zshenv ]] || {
  ZDOTDIR=${GPUCTL_ZDOTDIR:-$HOME}
  source $ZDOTDIR/.zshenv
  # It may lead to another folder, where the user's .zshrc is then looked for.
  GPUCTL_ZDOTDIR=$ZDOTDIR
}
ZDOTDIR=$GPUCTL_KUBE_FOLDER/zsh
