#!/bin/sh
# Saves tmux-main. Usage: save.sh once | every TOKEN. Does nothing on a server without that session, such as a preview.
tmux has-session -t =tmux-main 2>/dev/null || exit 0
if [ "$1" = every ]; then
  # A rebuilt session has its own saver.
  [ "$2" = "$(tmux show-options -sv @gpuctl_saver)" ] || exit 0
  # tmux itself waits: no process outlives the server.
  tmux run-shell -b -d "$(tmux show-options -gv @gpuctl_save_every)" "sh #{q:@gpuctl_folder}/scripts/save.sh every $2"
fi
"${GPUCTL_PROGRAM:-gpuctl}" tmux save >/dev/null 2>&1 ||
  tmux display-message 'the session could not be saved: gpuctl tmux save says why' 2>/dev/null
# tmux would show a non-zero status over the active pane.
exit 0
