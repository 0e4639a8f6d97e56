# shellcheck shell=bash
# bash reads this instead of ~/.bashrc in a pane whose Kubernetes context cannot be selected: the user's file first.
# shellcheck source=/dev/null
[ ! -f ~/.bashrc ] || . ~/.bashrc
export KUBECONFIG=/dev/null
