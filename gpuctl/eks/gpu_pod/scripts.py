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
NO_SSHD = 42  # exit code of the start script
NO_JUPYTER, NO_PYTHON, ANOTHER = 43, 44, 45  # exit codes of the script that asks Jupyter
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

trap 'say "ends"; kill "$daemon" 2>/dev/null; exit 0' TERM INT
while :; do
  "$sshd" -D -e -f {START_AT}/sshd_config -o PrintMotd=yes -o "SetEnv=$variables" &
  daemon=$!
  wait "$daemon"
  say "sshd ended with $?, once more in 5 s"
  sleep 5
done
"""


def listens(port: int) -> str:
    """Script that succeeds once a socket listens on this port of the loopback, by /proc/net/tcp and sh alone."""
    # State 0A is LISTEN; the address is a little-endian number in hexadecimal digits (proc(5), /proc/net/tcp).
    return f"""while read -r _ local _ state _; do
  [ "$local $state" != "0100007F:{port:04X} 0A" ] || exit 0
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


def sshd_config() -> str:
    """Configuration of sshd: keys only, and only for the port forward, which connects to the pod's own loopback."""
    more = (
        "ListenAddress 127.0.0.1",
        "Subsystem sftp internal-sftp",
        "ClientAliveInterval 30",
        "ClientAliveCountMax 4",
    )
    return sshd.keys_only(SSH_PORT, f"{RUN}/private/{HOST_KEY}", f"{KEYS}/{AUTHORIZED}", *more)
