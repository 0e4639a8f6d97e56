#!/bin/sh
# kubectl, oc and helm on the PATH of a smart shell or pane, under whose names links lead here: gpuctl judges words that
# could destroy something, and asks once where the context is a production one. Then the next program of that name on
# the PATH runs.
name=${0##*/}
real=''
IFS=:
set -f
for folder in $PATH; do
  file=${folder:-.}/$name
  if [ "$file" -ef "$0" ]; then
    real=''
  elif [ -z "$real" ] && [ -f "$file" ] && [ -x "$file" ]; then
    real=$file
  fi
done
unset IFS
if [ -z "$real" ]; then
  printf '%s: not found on the PATH\n' "$name" >&2
  exit 127
fi
case "${1-}" in
__complete*) exec "$real" "$@" ;;
esac
case " $* " in
*" delete "* | *" del "* | *" drain "* | *" cordon "* | *" scale "* | *" idle "* | *" undo "* | *" restart "* | *" taint "* | \
  *" prune "* | *" rollback "* | *" uninstall "* | *" un "* | *" --prune"* | *" --force"*)
  "${GPUCTL_PROGRAM:-gpuctl}" kube guard -- "$real" "$@" || exit
  ;;
esac
exec "$real" "$@"
