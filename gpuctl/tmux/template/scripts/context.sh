#!/bin/sh
# The Kubernetes context of a pane for the status bar. Usage: context.sh SERVER PANE c=COMMAND [KUBECONFIG]
# It runs at every refresh, so it starts only one `stat`, and gpuctl only if a file changed since the last time.
case $3 in
c=k9s)
  # k9s switches contexts internally and writes no file.
  echo '#[fg=colour245]unknown#[default]'
  exit
  ;;
esac
files=${4:-${KUBECONFIG:-$HOME/.kube/config}}
settings=${GPUCTL_CONFIG_DIR:-${XDG_CONFIG_HOME:-$HOME/.config}/gpuctl}/settings.yml
cache=${GPUCTL_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuctl}/tmux-status
kept=$cache/$1-${2#%}
IFS=:
set -f
set --
for file in $files "$settings"; do
  [ ! -e "$file" ] || set -- "$@" "$file"
done
unset IFS
stamp=none
if [ $# -gt 0 ]; then
  # Name, times in nanoseconds, inode and size; the letters differ between GNU and BSD.
  stamp=$(stat -L --printf '%n %.Y %.Z %i %s;' -- "$@" 2>/dev/null || stat -Lnf '%N %Fm %Fc %i %z;' -- "$@" 2>/dev/null)
fi
stamp="$files|$stamp"
if { IFS= read -r known && IFS= read -r text; } 2>/dev/null <"$kept" && [ "$known" = "$stamp" ]; then
  printf '%s\n' "$text"
  exit
fi
# Ask again in the background, as the status bar cannot wait; show ... until then.
echo '#[fg=colour245]...#[default]'
(umask 077 && mkdir -p "$cache")
[ -z "$(find "$kept.busy" -prune -mmin +1 2>/dev/null)" ] || rmdir "$kept.busy"
mkdir "$kept.busy" 2>/dev/null || exit 0
(
  text=$("${GPUCTL_PROGRAM:-gpuctl}" tmux status "$files" 2>/dev/null) && [ -n "$text" ] ||
    text='#[fg=colour245]unknown#[default]'
  printf '%s\n%s\n' "$stamp" "$text" >"$kept.new" && mv -f "$kept.new" "$kept"
  rmdir "$kept.busy"
  find "$cache" -type f -mtime +7 -delete
  for client in $(tmux list-clients -F '#{client_name}' 2>/dev/null); do
    tmux refresh-client -S -t "$client"
  done
) >/dev/null 2>&1 &
