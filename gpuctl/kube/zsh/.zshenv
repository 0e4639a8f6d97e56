# zsh reads this first, instead of the user's own ~/.zshenv, which follows.
[[ ! -f ${GPUCTL_ZDOTDIR:-$HOME}/.zshenv ]] || {
  ZDOTDIR=${GPUCTL_ZDOTDIR:-$HOME}
  source $ZDOTDIR/.zshenv
  # It may set another folder, which then contains the user's .zshrc.
  GPUCTL_ZDOTDIR=$ZDOTDIR
}
ZDOTDIR=$GPUCTL_KUBE_FOLDER/zsh
# Without the option rcs, zsh reads no further file.
[[ -o rcs ]] || KUBECONFIG=$GPUCTL_KUBECONFIG
