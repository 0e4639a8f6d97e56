"""Shell programs of a GPU pod: a name for its user, sshd, and Jupyter. Any image with sh and sshd works."""

from __future__ import annotations

import shlex

from gpuctl.domain import sshd

RUN, KEYS, HOST, START_AT, WORKSPACE = (
    "/run/gpuctl",
    "/etc/gpuctl/keys",
    "/etc/gpuctl/host",
    "/etc/gpuctl/start",
    "/workspace",
)
HOME, CACHE = f"{WORKSPACE}/home", f"{WORKSPACE}/huggingface"
AUTHORIZED, HOST_KEY, TOKEN = "authorized_keys", "host", "jupyter-token"
USER, ROOT = "gpu", "root"
SSH_PORT, JUPYTER_PORT = 2222, 8888
EXPOSED_PORT, EXPOSED_AS = 2223, 22  # sshd behind a load balancer, and that load balancer
LOOPBACK, ANY = "0100007F", "00000000"  # addresses in /proc/net/tcp: little-endian, in hexadecimal digits
NO_SSHD = 42  # exit code of the start script
NO_JUPYTER, NO_PYTHON, ANOTHER = 43, 44, 45  # exit codes of the script that asks Jupyter
NO_SLURM = 46  # exit code of the script that asks Slurm
SLURM, SLURM_WORK = f"{RUN}/slurm", "/tmp/gpuctl-slurm"  # noqa: S108 - paths in the pod
CPUS, MEMORY_MIB = "GPUCTL_SLURM_CPUS", "GPUCTL_SLURM_MIB"  # variables of a pod with Slurm: its limits
SLURM_PROGRAMS = "munged slurmctld slurmd srun sinfo"
# Without a proxy: the address is the pod's own.
ASK_JUPYTER = f"""
import sys, urllib.error, urllib.request
browser = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
def status(**headers):
    request = urllib.request.Request("http://127.0.0.1:{JUPYTER_PORT}/api/contents", headers=headers)
    try:
        return browser.open(request, timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
try:
    with open("{RUN}/private/{TOKEN}") as token:
        codes = status(), status(Authorization="token " + token.read())
except OSError:
    sys.exit(1)
sys.exit(0 if codes == (403, 200) else {ANOTHER})
"""


# sshd takes nobody without a name; a user of the same number or name in the image gives place to this one.
def prepare(user: int) -> str:
    """Script of the init container: a name and a home for the pod's user, a number."""
    name = USER if user else ROOT
    return f"""# Before the pod starts: a name and a home for its user.
set -eu
umask 022
shell=/bin/sh
[ ! -x /bin/bash ] || shell=/bin/bash
while IFS=: read -r other password number rest; do
  [ "$number" = {user} ] || [ "$other" = {name} ] || echo "$other:$password:$number:$rest"
done </etc/passwd >{RUN}/passwd || true
echo "{name}:x:{user}:{user}::{HOME}:$shell" >>{RUN}/passwd
: >{RUN}/motd
"""


START = f"""# In the GPU pod: keys, what the login shows, then sshd.
set -u
umask 022
PATH="$PATH:/usr/sbin:/sbin"

say() {{ echo "gpuctl: $*"; }}

sshd=$(command -v sshd) || {{ say "no sshd in the image: use one with openssh-server"; exit {NO_SSHD}; }}
mkdir -p {HOME} {CACHE} || {{ say "the workspace cannot be written"; exit 1; }}
chmod 700 {HOME} 2>/dev/null

[ "$(id -u)" != 0 ] || mkdir -p /run/sshd

# sshd takes no private key that others may read, and a mounted Secret is also its group's.
(
  umask 077
  mkdir -p {RUN}/private
  cp -fL {HOST}/* {RUN}/private/
) || {{ say "the host key cannot be read"; exit 1; }}

{{
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv,noheader 2>&1 |
      while read -r line; do echo "GPU $line"; done
    driver_cuda=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\\([0-9.]*\\).*/\\1/p')
    echo "CUDA of the driver ${{driver_cuda:-UNKNOWN}}, of the image ${{CUDA_VERSION:-UNKNOWN}}"
  else
    echo "GPUs, driver and CUDA UNKNOWN: no nvidia-smi in this pod"
  fi
  echo "${{GPUCTL_NOTE:-{WORKSPACE} stays when the pod goes; all else does not}}"
}} >{RUN}/motd

variables="PATH=$PATH LD_LIBRARY_PATH=${{LD_LIBRARY_PATH:-}} HF_HOME=$HF_HOME"
[ -z "${{CUDA_VERSION:-}}" ] || variables="$variables CUDA_VERSION=$CUDA_VERSION"
variables="$variables ${{GPUCTL_VARIABLES:-}}"

jupyter() {{
  [ -e {RUN}/private/{TOKEN} ] || return 0
  command -v jupyter-lab >/dev/null || {{ say "no jupyter-lab in the image"; return 0; }}
  # Old servers read the second token. No command line shows it, and no environment: the file is of this user alone.
  (umask 077; mkdir -p {RUN}/jupyter; cat >{RUN}/private/jupyter.json) <<EOF
{{"IdentityProvider": {{"token": "$(cat {RUN}/private/{TOKEN})"}},
 "ServerApp": {{"token": "$(cat {RUN}/private/{TOKEN})",
  "ip": "127.0.0.1", "port": {JUPYTER_PORT}, "port_retries": 0, "root_dir": "{WORKSPACE}",
  "open_browser": false, "allow_root": true}}}}
EOF
  while :; do
    JUPYTER_RUNTIME_DIR={RUN}/jupyter jupyter-lab --config={RUN}/private/jupyter.json
    say "Jupyter ended with $?, once more in 5 s"
    sleep 5
  done
}}
jupyter &

# One node without privileges, for the pod's user alone: Slurm gives out GPUs, processors and memory, and confines none.
slurm() {{
  for program in {SLURM_PROGRAMS}; do
    command -v $program >/dev/null || {{ say "no $program in the image"; return 0; }}
  done
  rm -rf {SLURM} {SLURM_WORK}
  mkdir -p {SLURM} {SLURM_WORK}/slurmctld {SLURM_WORK}/slurmd
  (umask 077; head -c 128 /dev/urandom >{SLURM}/munge.key)
  : >{SLURM}/types
  : >{SLURM}/gres.conf
  # No plugin of slurm.conf uses control groups, and the default of this one asks systemd, which a pod lacks.
  echo "CgroupPlugin=cgroup/v1" >{SLURM}/cgroup.conf
  # Slurm makes CUDA_VISIBLE_DEVICES of the number of a file. Those of devices are the host's, CUDA counts the pod's.
  names=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) || names=
  number=0
  printf '%s' "${{names:+$names
}}" | while IFS= read -r name; do
    type=$(printf %s "$name" | tr '[:upper:]' '[:lower:]' |
      sed 's/^nvidia //; s/^tesla //; s/^geforce //; s/^rtx /rtx_/; s/[^a-z0-9_].*//')
    ln -s /dev/null {SLURM}/gpu$number
    echo "Name=gpu Type=$type File={SLURM}/gpu$number" >>{SLURM}/gres.conf
    echo "$type" >>{SLURM}/types
    number=$((number + 1))
  done
  gres=$(sort {SLURM}/types | uniq -c | while read -r count type; do printf 'gpu:%s:%s,' "$type" "$count"; done)
  cat >{SLURM}/slurm.conf <<EOF
ClusterName=pod
SlurmctldHost=$(uname -n)(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthInfo=socket={SLURM}/munge.socket
StateSaveLocation={SLURM_WORK}/slurmctld
SlurmdSpoolDir={SLURM_WORK}/slurmd
SlurmctldPidFile={SLURM}/slurmctld.pid
SlurmdPidFile={SLURM}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=$(({MEMORY_MIB} / {CPUS}))
ReturnToService=2
SlurmdParameters=config_overrides
${{gres:+GresTypes=gpu}}
NodeName=$(uname -n) NodeAddr=127.0.0.1 CPUs=${CPUS} RealMemory=${MEMORY_MIB} ${{gres:+Gres=${{gres%,}}}} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
  export SLURM_CONF={SLURM}/slurm.conf
  again munged --force --foreground --num-threads=1 --socket={SLURM}/munge.socket --key-file={SLURM}/munge.key \\
    --pid-file={SLURM}/munged.pid --seed-file={SLURM}/munge.seed --log-file={SLURM_WORK}/munged.log &
  again slurmctld -D &
  again slurmd -D &
}}

again() {{
  while :; do
    "$@" >>{SLURM_WORK}/"$1".log 2>&1
    say "$1 ended with $?, once more in 5 s; {SLURM_WORK}/$1.log has its messages"
    sleep 5
  done
}}
[ -z "${{{CPUS}:-}}" ] || {{ variables="$variables SLURM_CONF={SLURM}/slurm.conf"; slurm; }}

trap 'say "ends"; kill "$daemon" 2>/dev/null; exit 0' TERM INT
while :; do
  "$sshd" -D -e -f {START_AT}/sshd_config -o PrintMotd=yes -o "SetEnv=$variables" &
  daemon=$!
  wait "$daemon"
  say "sshd ended with $?, once more in 5 s"
  sleep 5
done
"""


def listens(port: int, address: str = LOOPBACK) -> str:
    """Script that succeeds once a socket listens on this port of an address, by /proc/net/tcp and sh alone."""
    # State 0A is LISTEN (proc(5), /proc/net/tcp).
    return f"""while read -r _ local _ state _; do
  [ "$local $state" != "{address}:{port:04X} 0A" ] || exit 0
done </proc/net/tcp
exit 1
"""


def jupyter_answers() -> str:
    """Script that succeeds once Jupyter answers to its token, and to nobody without it.

    Exit code 1: nothing answers yet; NO_JUPYTER, NO_PYTHON: not in the image; ANOTHER: an answer of another kind.
    """
    missing = (
        f"command -v jupyter-lab >/dev/null || exit {NO_JUPYTER}\ncommand -v python3 >/dev/null || exit {NO_PYTHON}"
    )
    return f"{missing}\nexec python3 -c {shlex.quote(ASK_JUPYTER)}"


def slurm_answers() -> str:
    """Script that prints state and GPUs of Slurm's node; exit code NO_SLURM: not in the image."""
    return f"""PATH="$PATH:/usr/sbin:/sbin"
for program in {SLURM_PROGRAMS}; do
  command -v $program >/dev/null || exit {NO_SLURM}
done
export SLURM_CONF={SLURM}/slurm.conf
exec sinfo --noheader --format='%T %G'
"""


# Sessions go on: the daemon, whose parent is the start script, alone reads its configuration again.
RELOAD = """for stat in /proc/[0-9]*/stat; do
  read -r pid name _ parent _ <"$stat" || continue
  [ "$name $parent" != "(sshd) 1" ] || kill -HUP "$pid"
done 2>/dev/null
"""


def sshd_config(*, exposed: bool = False) -> str:
    """Configuration of sshd: keys only, for the port forward, which connects to the pod's own loopback.

    `exposed`: a further port, of all addresses of the pod, for a load balancer.
    """
    more = (
        f"ListenAddress 127.0.0.1:{SSH_PORT}",
        *([f"ListenAddress 0.0.0.0:{EXPOSED_PORT}"] if exposed else []),
        "Subsystem sftp internal-sftp",
        "ClientAliveInterval 30",
        "ClientAliveCountMax 4",
    )
    return sshd.keys_only(SSH_PORT, f"{RUN}/private/{HOST_KEY}", f"{KEYS}/{AUTHORIZED}", *more)
