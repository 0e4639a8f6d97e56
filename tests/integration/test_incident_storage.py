"""The cause of slow storage by measurement: a real disk that the kernel throttles, and a real host over ssh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuctl.domain.findings import Verdict
from gpuctl.incident import storage as rules
from gpuctl.incident.model import Certainty
from gpuctl.workflows.incident import storage
from tests.integration.test_audit import targets
from tests.rig import TestHost
from tests.rig.needs import HOSTS, need

MIB = 1 << 20
LIMIT = 4 * MIB  # bytes a second
MEASURE = """import json, sys
from gpuctl.engine import gpuhost_api
print(json.dumps(gpuhost_api.visit(json.loads(sys.argv[1]))))
"""


@contextmanager
def throttled(device: str) -> Iterator[Path]:
    """The `cgroup.procs` of a control group whose reads of a disk the kernel throttles."""
    version_1, version_2 = Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup")
    controllers = version_2 / "cgroup.controllers"
    is_second = controllers.exists() and "io" in controllers.read_text().split()
    need("" if is_second or version_1.exists() else "no control group limits reads here", HOSTS)
    group = (version_2 if is_second else version_1) / f"gpuctl-test-{os.getpid()}"
    group.mkdir()
    try:
        if is_second:
            (group / "io.max").write_text(f"{device} rbps={LIMIT}")
        else:
            (group / "blkio.throttle.read_bps_device").write_text(f"{device} {LIMIT}")
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def test_a_disk_that_the_kernel_throttles_is_measured_at_its_limit() -> None:
    need("" if os.geteuid() == 0 else "only root makes control groups", HOSTS)
    with TemporaryDirectory(dir="/var/tmp", prefix="gpuctl-") as folder:
        device = Path(folder).stat().st_dev
        need("" if os.major(device) else "the folder is on no disk here", HOSTS)
        with (Path(folder) / "shard").open("wb") as stream:
            stream.write(os.urandom(24 * MIB))
            os.fsync(stream.fileno())
        os.utime(Path(folder) / "shard", (1000, 1000))
        options = storage.StorageOptions(folder, window_s=0.2, read_s=3.0, read_mib=64)
        argv = [sys.executable, "-c", MEASURE, json.dumps(options.request())]
        with throttled(f"{os.major(device)}:{os.minor(device)}") as members:
            enter = 'echo $$ > "$0" && exec "$@"'
            done = subprocess.run(["sh", "-c", enter, members, *argv], capture_output=True, check=True, timeout=60)
    facts = json.loads(done.stdout)["facts"]["storage_load"]
    findings = rules.judge({"here": facts})
    cause = rules.cause(findings)
    assert (cause.certainty, "of 4.2 MB/s" in cause.evidence[0]) == (Certainty.PROVEN, True)


def test_a_host_is_measured_over_ssh_by_a_user_without_rights(host: TestHost) -> None:
    make = "dd if=/dev/urandom of=/srv/data/shard bs=1M count=8 status=none && touch -d @1000 /srv/data/shard"
    host.run("sh", "-c", f"mkdir -p /srv/data && mkdir -m 700 /srv/closed && {make}")
    for path, verdict in (("/srv/data", Verdict.OK), ("/srv/closed", Verdict.UNKNOWN), ("/srv/gone", Verdict.UNKNOWN)):
        options = storage.StorageOptions(path, window_s=0.1, read_s=2.0, read_mib=16)
        answers = storage.ask_hosts(targets([host], become=False), options, lambda _: None)
        assert answers.missing == {}
        [of_path] = [f for f in rules.judge(answers.fleet) if f.check in ("path", "measured")][:1]
        assert of_path.verdict in (verdict, Verdict.WARN), of_path  # WARN: overlayfs without O_DIRECT
