#!/bin/sh
# Shows the last 20 commands of the active pane; the chosen one is typed into it again.
pane=${GPUCTL_PANE:-$(tmux display-message -p '#{pane_id}')}
file=$(tmux show-options -pqv -t "$pane" @gpuctl_history)
if [ -z "$file" ] || [ ! -s "$file" ]; then
  echo 'This pane has no commands yet, or no smart shell (gpuctl kube shell) that records them.'
  printf '\npress any key to close\n'
  stty -icanon -echo min 1
  dd bs=16 count=1 >/dev/null 2>&1
  exit
fi
# The newest first, each once.
last=$(awk 'NF { line[++count] = $0 }
  END { for (i = count; i > 0 && shown < 20; i--) if (!seen[line[i]]++) { shown++; print line[i] } }' "$file")
if command -v fzf >/dev/null 2>&1; then
  chosen=$(printf '%s\n' "$last" | fzf --no-sort --reverse --prompt 'run again: ')
else
  printf '%s\n' "$last" | awk '{ printf "%2d  %s\n", NR, $0 }'
  printf '\nnumber to run again (Enter for none): '
  IFS= read -r number
  case $number in
  '' | *[!0-9]*) exit ;;
  esac
  chosen=$(printf '%s\n' "$last" | sed -n "${number}p")
fi
case $chosen in
# tmux takes a ; at the end of an argument for the end of the command.
*\;) chosen=${chosen%?}\\\; ;;
esac
[ -z "$chosen" ] || tmux send-keys -t "$pane" -l -- "$chosen" \; send-keys -t "$pane" Enter
