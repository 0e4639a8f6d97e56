#!/bin/sh
# Shows the cheatsheet in as many columns as needed; any key closes it.
folder=$(dirname "$(dirname "$0")")
size=$(stty size)
keys=$(tmux show-options -sqv @gpuctl_keys_without_prefix 2>/dev/null)
# The user may have set another prefix on this server.
prefix=$(tmux show-options -gqv prefix 2>/dev/null)
awk -v rows="${size% *}" -v width="${size#* }" -v keys="$keys" '
  /^[^ ]/ { left_out = keys == "off" && /^WITHOUT PREFIX/ }
  left_out { next }
  /^PREFIX / { next }  # shown in the last line, as it is on this server
  { line[++count] = $0; if (length($0) > widest) widest = length($0) }
  END {
    rows -= 2  # the last line is the hint on closing it
    columns = int((count + rows - 1) / rows)
    if (columns * (widest + 1) > width) columns = int(width / (widest + 1))
    if (columns < 1) columns = 1
    high = int((count + columns - 1) / columns)
    for (row = 1; row <= high; row++) {
      for (column = 0; column < columns; column++) {
        text = sprintf("%-" (widest + 1) "s", line[row + column * high])
        if (text ~ /^[^ ]/) printf "\033[1;33m%s\033[0m", text
        else printf "\033[36m%s\033[0m%s", substr(text, 1, 11), substr(text, 12)
      }
      print ""
    }
  }' "$folder/cheatsheet.txt"
printf '\033[1;33mprefix %s, then the key\033[0m \033[2m press any key to close\033[0m' "${prefix:-C-b}"
stty -icanon -echo -isig min 1
dd bs=16 count=1 >/dev/null 2>&1
