"""The floor: one parallel ssh per host that reads the same values, without decisions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(inventory: str, command: str, *options: str) -> int:
    """Run a command with our standard input on all hosts of the rig's inventory in parallel."""
    program = sys.stdin.buffer.read()
    state = Path(inventory).parent
    addresses = [
        line.split("ansible_host=")[1] for line in Path(inventory).read_text().splitlines() if "ansible_host=" in line
    ]
    key = [
        "-i",
        f"{state}/id_ed25519",
        "-o",
        f"UserKnownHostsFile={state}/known_hosts",
        "-o",
        "StrictHostKeyChecking=yes",
    ]
    ssh = ["ssh", "-T", "-o", "BatchMode=yes", *key, *options]
    running = [_start([*ssh, f"root@{address}", command], program) for address in addresses]
    outputs = [process.communicate()[0] for process in running]
    failed = [process.returncode for process in running if process.returncode != 0]
    if failed or not all(outputs):
        sys.exit(f"{len(failed)} of {len(addresses)} hosts failed")
    sys.stdout.buffer.write(b"\n".join(outputs))
    return 0


def _start(argv: list[str], program: bytes) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if process.stdin is not None:
        process.stdin.write(program)
        process.stdin.close()
        process.stdin = None
    return process


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
