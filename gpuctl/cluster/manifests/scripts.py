"""Shell programs that start a pod; any image with /bin/sh works."""

from __future__ import annotations

from gpuctl.domain import sshd

GROUP_UMASK = 0o002
# In the command line and in the environment of what a supervisor runs (gpuctl/remote).
SUPERVISOR, MARK = "gpuctl-old-python", "PYTHON_GPUCTL_PROGRAM"
RUN, KEYS, START_AT, HOSTS = "/run/gpuctl", "/etc/gpuctl/keys", "/etc/gpuctl/start", "/job"
HOME, PASSWD = "/home/gpuctl", "/etc/passwd"

# OpenShift gives pods a user that has no name, and neither ssh nor sshd take nobody: it gets one, and a home.
PREPARE = f"""# Before the pod starts: a name and a home for its user, whatever number that is.
set -eu
run=${{GPUCTL_RUN:-{RUN}}}
umask 022
uid=$(id -u)
name=$(id -un 2>/dev/null) || name=gpuctl
shell=/bin/sh
[ ! -x /bin/bash ] || shell=/bin/bash
cat /etc/passwd 2>/dev/null | while IFS=: read -r other password number rest; do
  [ "$number" = "$uid" ] || echo "$other:$password:$number:$rest"
done >"$run/passwd"
echo "$name:x:$uid:$(id -g)::{HOME}:$shell" >>"$run/passwd"
"""

START = f"""# In every pod: say its rank, open the ways in, and wait. Training is begun by `gpuctl cluster train`.
set -u
# The pods of both modes have a group in common: what one writes, the other may change.
umask {GROUP_UMASK:03o}
run=${{GPUCTL_RUN:-{RUN}}}
keys=${{GPUCTL_KEYS:-{KEYS}}}
here=${{GPUCTL_START:-{START_AT}}}
PATH="$PATH:/usr/sbin:/sbin"
. "$here/settings.sh"
# What a container leaves that is started again.
rm -f "$run/ready"

say() {{ echo "gpuctl: $*"; }}

# Start a program again and again; a pod does not end because an editor did.
keepers=
keep() {{
  while :; do
    "$@"
    say "$1 ended with $?, once more in 5 s"
    sleep 5
  done &
  keepers="$keepers $!"
}}

# Programs that SIGTERM ends, into $pids. Neither sshd (ranks of launchers that use ssh depend on it) nor programs that
# ignore SIGTERM, such as an idle interactive shell.
list_programs() {{
  pids=
  for status in /proc/[0-9]*/status; do
    pid=${{status#/proc/}} name='' state='' ignored=''
    while read -r key value rest; do
      case $key in
        Name:) name=$value ;;
        State:) state=$value ;;
        SigIgn:) ignored=$value ;;
      esac
    done 2>/dev/null <"$status" || continue
    case "${{pid%/status}} $name $state $ignored" in
      '1 '* | *' sshd'* | *' Z '* | *' X '* | *[4567cdef]???) ;;
      *) pids="$pids ${{pid%/status}}" ;;
    esac
  done
}}

# The mark of the supervised program that a process belongs to, into $mark.
read_mark() {{
  {{ mark=$(cat "/proc/$1/environ"); }} 2>/dev/null
  case $mark in
    *{MARK}=detached-*) mark=$(printf '%.41s' "${{mark#*{MARK}=}}") ;;
    *{MARK}=*) mark=$(printf '%.32s' "${{mark#*{MARK}=}}") ;;
    *) mark='' ;;
  esac
}}

# Programs that get SIGTERM from here, of $pids into $ours. The supervisor of a program in this pod gets it, too, and
# passes it on: a second one might end the program while it writes its checkpoint.
select_ours() {{
  ours='' supervised=' '
  for pid in $pids; do
    read -r words 2>/dev/null <"/proc/$pid/stat" || continue
    # shellcheck disable=SC2086 # the fields after the program's name
    set -- ${{words##*) }}
    {{ command=$(cat "/proc/$2/cmdline"); }} 2>/dev/null
    case $command in
      *{SUPERVISOR}*) read_mark "$pid"; supervised="$supervised$mark " ;;
    esac
  done
  for pid in $pids; do
    read_mark "$pid"
    case $supervised in
      *" ${{mark:-none}} "*) ;;
      *) ours="$ours $pid" ;;
    esac
  done
}}

# The pod is deleted, drained or evicted: pass SIGTERM on, so that training can write a checkpoint, and stay until all
# of it has ended. After the grace period the kubelet kills what is left.
finish() {{
  trap '' TERM INT
  rm -f "$run/ready"
  # Only the first process of a pod has nothing but the pod's own processes around it.
  [ "$$" = 1 ] || exit 0
  # First what would start programs anew.
  # shellcheck disable=SC2086 # a list of numbers
  [ -z "$keepers" ] || kill -KILL $keepers 2>/dev/null
  list_programs
  select_ours
  say "SIGTERM to the programs of this pod:${{ours:- none}}"
  # shellcheck disable=SC2086 # a list of numbers
  [ -z "$ours" ] || kill -TERM $ours 2>/dev/null
  while list_programs; [ -n "$pids" ]; do
    sleep 0.2 2>/dev/null || sleep 1
  done
  say "all programs have ended"
  exit 0
}}
trap finish TERM INT

# The rank is the number at the end of the pod's name; a pod that stands alone is the first.
rank=${{POD_NAME##*-}}
case $rank in
  '' | *[!0-9]*) rank=0 ;;
esac
{{
  echo "export NODE_RANK=$rank"
  echo "umask $(umask)"
}} >"$run/env"
say "rank $rank, mode $mode"

# RDMA locks memory: as much as the container runtime allows, or all where the pod may say so itself.
ulimit -l unlimited 2>/dev/null || ulimit -S -l "$(ulimit -H -l)" 2>/dev/null
say "memlock $(ulimit -l)"
if command -v nvidia-smi >/dev/null; then
  say "gpus $(nvidia-smi -L 2>/dev/null | grep -c '^GPU') of $gpus"
else
  say "gpus unknown: no nvidia-smi"
fi

[ -s "$keys/identity" ] || {{ say "the Secret is empty: gpuctl cluster deploy fills it"; exit 1; }}
(
  umask 077
  mkdir -p "$run/keys" "$HOME/.ssh"
  # ssh takes no private key that others may read, and a mounted Secret is also its group's.
  cp -fL "$keys"/* "$run/keys/"
  cp "$here/ssh_config" "$HOME/.ssh/config"
)

if sshd=$(command -v sshd); then
  [ "$(id -u)" != 0 ] || mkdir -p /run/sshd
  # By BASH_ENV, programs that come by ssh get the rank and the umask, too.
  variables="PATH=$PATH LD_LIBRARY_PATH=${{LD_LIBRARY_PATH:-}} BASH_ENV=$run/env"
  keep "$sshd" -D -e -f "$here/sshd_config" -o "SetEnv=$variables"
else
  say "no sshd in the image: launchers that use ssh do not work, those without do"
fi

# Standard input into a file of this user alone.
private() {{ (umask 077; cat >"$1"); }}

vscode() {{
  command -v code-server >/dev/null || {{ say "no code-server in the image"; return; }}
  private "$run/code-server.yaml" <<EOF
bind-addr: $vscode_address:$vscode_port
auth: password
password: "$(cat "$run/keys/vscode-password")"
cert: false
EOF
  keep code-server --config "$run/code-server.yaml" --disable-telemetry --disable-update-check /workspace
}}

jupyter() {{
  command -v jupyter-lab >/dev/null || {{ say "no jupyter-lab in the image"; return; }}
  private "$run/jupyter.json" <<EOF
{{"IdentityProvider": {{"token": "$(cat "$run/keys/jupyter-password")"}},
 "ServerApp": {{"ip": "$jupyter_address", "port": $jupyter_port, "port_retries": 0, "root_dir": "/workspace",
  "open_browser": false, "allow_root": true}}}}
EOF
  keep jupyter-lab --config="$run/jupyter.json"
}}

# Editors on the first pod only. Their passwords stand in files: no command line shows them, and no environment.
if [ "$rank" = 0 ]; then
  vscode
  jupyter
fi

: >"$run/ready"
say "ready"
while :; do
  sleep 3600 &
  wait $!
done
"""


def sshd_config(port: int) -> str:
    """Configure sshd for keys only; it also works as an unprivileged user."""
    return sshd.keys_only(
        port, f"{RUN}/keys/host", f"{RUN}/keys/authorized", f"Subsystem sftp internal-sftp -u {GROUP_UMASK:03o}"
    )


def ssh_config(port: int, alias: str) -> str:
    """Configure ssh between pods; all pods share one host key, which is checked under the environment's name."""
    return f"""Host *
  Port {port}
  IdentityFile {RUN}/keys/identity
  IdentitiesOnly yes
  BatchMode yes
  ConnectTimeout 10
  HostKeyAlias {alias}
  UserKnownHostsFile {RUN}/keys/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  ServerAliveInterval 10
  ServerAliveCountMax 3
"""
