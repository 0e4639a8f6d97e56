#!/bin/sh
# The number of ports that `gpuctl kube forward --background` forwards, for the status bar; nothing if there are none.
# It runs at every refresh: it starts one program if there are state files, else none.
folder=${GPUCTL_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/gpuctl}/forwards
set -- "$folder"/*.state
[ -e "$1" ] || exit 0
up=0 all=0
# A running process renews its file; an old one is left from a process that was killed, perhaps before a reboot.
recent=$(cd "$folder" && find . -name '*.state' -mmin -2)
for file in $recent; do
  number=${file##*/}
  number=${number%.state}
  if IFS= read -r pid <"$folder/$number.lock" && kill -0 "$pid" && IFS=' ' read -r some every <"$folder/$number.state"; then
    up=$((up + some)) all=$((all + every))
  fi 2>/dev/null
done
[ "$all" -gt 0 ] || exit 0
if [ "$up" -eq "$all" ]; then
  printf '#[fg=green]%s forwarded#[default]\n' "$all"
else
  printf '#[fg=yellow,bold]%s of %s forwarded#[default]\n' "$up" "$all"
fi
