#!/bin/sh
# Shows a repository's status and last commits, then starts a shell in the pane's folder.
# Usage: repository.sh NAME FOLDER
(
  if ! cd "$2" 2>/dev/null; then
    printf 'There is no folder %s for the repository %s.\n' "$2" "$1"
    printf '  clone it there, or set its folder in ~/.config/gpuctl/settings.yml: repositories: {%s: …}\n' "$1"
  elif ! command -v git >/dev/null 2>&1; then
    echo "git is not installed; gpuctl bootstrap laptop installs it"
  elif ! git rev-parse --git-dir >/dev/null 2>&1; then
    printf '%s is not a git repository.\n' "$2"
  else
    git status
    echo
    git --no-pager log --max-count=8 --pretty='%C(auto)%h %C(blue)%ad%C(auto)%d %s' 2>/dev/null || echo "no commits yet"
  fi
)
exec sh "$(dirname "$0")/shell.sh"
