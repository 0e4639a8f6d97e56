"""Shell programs that run in the pods, and the files of their Secret."""

from __future__ import annotations

from gpuctl.domain import sshd
from gpuctl.nccl.runners.kube.hang_probe import ANSWER_S, LOOKED
from gpuctl.nccl.runners.kube.model import Task

FOLDER = "/etc/gpuctl"
PORT = 2222
MISSING = "gpuctl: missing "
SILENT = "gpuctl: no ssh to "
MEMLOCK = "gpuctl: memlock "
# Seconds for each worker's sshd to answer.
REACH_S = 90

# Programs are searched in the user's folders, which must exist, then on the image's PATH.
PLACES = f"""
IFS=:
for folder in $GPUCTL_FIRST; do
  [ -d "$folder" ] || {{ echo "{MISSING}$folder"; exit 127; }}
done
unset IFS
PATH="${{GPUCTL_FIRST:+$GPUCTL_FIRST:}}$PATH:$GPUCTL_FOLDERS"
""".strip()

# Worker: sshd, whose sessions get the PATH and libraries of the image. As root it needs /run/sshd.
WORKER = f"""
{PLACES}
PATH="$PATH:/usr/sbin:/sbin"
sshd=$(command -v sshd) || {{ echo "{MISSING}sshd"; exit 127; }}
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
exec "$sshd" -D -e -f {FOLDER}/sshd_config -o "SetEnv=PATH=$PATH LD_LIBRARY_PATH=${{LD_LIBRARY_PATH:-}}"
"""

# Launcher, also of a single node (then GPUCTL_HOSTS is empty): "$@" is the whole command, with programs on the PATH.
# The hostfile of the MPI operator has other host names, so it is unset. The probe of the ranks ends with the container.
LAUNCHER = f"""
{PLACES}
unset OMPI_MCA_orte_default_hostfile PRTE_MCA_prte_default_hostfile
for program in $GPUCTL_NEEDS; do
  command -v "$program" >/dev/null || {{ echo "{MISSING}$program"; exit 127; }}
done
for host in $GPUCTL_HOSTS; do
  tries=0
  until memlock=$(ssh -F {FOLDER}/ssh_config "$host" 'ulimit -l' 2>/dev/null); do
    tries=$((tries + 1))
    [ "$tries" -lt {REACH_S} ] || {{ echo "{SILENT}$host"; exit 125; }}
    sleep 1
  done
  echo "{MEMLOCK}$host $memlock"
done
(
  sleep "$GPUCTL_LIMIT"
  echo # the test may have left a row unfinished
  [ -n "$GPUCTL_HOSTS" ] || sh -c "$GPUCTL_LOOK" look alone "$GPUCTL_MARK" "$GPUCTL_TEST"
  for host in $GPUCTL_HOSTS; do
    printf '%s' "$GPUCTL_LOOK" |
      timeout {ANSWER_S} ssh -F {FOLDER}/ssh_config "$host" sh -s "$host" "$GPUCTL_MARK" "$GPUCTL_TEST" &
  done
  wait
  echo "{LOOKED}"
) 2>/dev/null &
first=$(command -v "$1")
shift
exec "$first" "$@"
"""

SSHD_CONFIG = sshd.keys_only(PORT, f"{FOLDER}/host", f"{FOLDER}/authorized", "AllowTcpForwarding no")

SSH_CONFIG = f"""Host *
  Port {PORT}
  User {{user}}
  IdentityFile {FOLDER}/identity
  IdentitiesOnly yes
  BatchMode yes
  ConnectTimeout 5
  HostKeyAlias workers
  UserKnownHostsFile {FOLDER}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  ServerAliveInterval 10
  ServerAliveCountMax 3
"""


def secret_files(task: Task, login: tuple[str, str], host: tuple[str, str]) -> dict[str, str]:
    """Files of the Secret by name; `login` and `host` are key pairs (private, public) created for this run."""
    user = task.settings.user
    named = f"nccl:x:{user}:{user}::/tmp:/bin/sh\n" if user else ""
    return {
        "identity": login[0],
        "authorized": f"restrict {login[1]}\n",
        "host": host[0],
        "known_hosts": f"workers {host[1]}\n",
        "ssh_config": _addresses(task) + SSH_CONFIG.format(user="nccl" if user else "root"),
        "sshd_config": SSHD_CONFIG,
        # ssh and sshd need a user name; an image rarely has a user with this ID.
        "passwd": f"root:x:0:0::/root:/bin/sh\n{named}sshd:x:65533:65533::/:/bin/false\n",
    }


def _addresses(task: Task) -> str:
    """ssh settings that map worker names to the operator's pods; our own pods are in the launcher's hosts file."""
    if not task.by_operator:
        return ""
    return "".join(f"Host {host}\n  HostName {task.name}-worker-{host[1:]}.{task.name}\n" for host in task.hosts)
