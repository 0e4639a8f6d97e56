#!/bin/sh
# Applies the user's settings to this server: whether keys without prefix are enabled.
"${GPUCTL_PROGRAM:-gpuctl}" tmux settings >/dev/null 2>&1
# tmux would show a non-zero status over the active pane.
exit 0
