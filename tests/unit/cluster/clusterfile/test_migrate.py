"""Files of the older layout become today's: comments kept, every change told, the old file never lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuctl.cli.cluster.group import group
from gpuctl.cluster.clusterfile.migrate import Added, migrate, replace
from gpuctl.cluster.clusterfile.read import load
from gpuctl.core.errors import InvalidInput
from tests.rig.cluster.files import OPENSHIFT, ROOT

OLDER = ROOT / "tests/data/cluster/older"
NAMED = Added(image="quay.io/team/ml:1", resources={"openshift.io/mlx": 2})


@pytest.fixture
def roce(tmp_path: Path) -> Path:
    return Path(shutil.copy(OLDER / "roce.yaml", tmp_path))


@pytest.fixture
def tcp(tmp_path: Path) -> Path:
    return Path(shutil.copy(OLDER / "tcp.yaml", tmp_path))


def test_what_the_older_file_said_the_new_one_says(roce: Path) -> None:
    moved = migrate(roce, NAMED)
    assert moved.left == ()
    roce.write_text(moved.text)
    found = load(roce)
    rdma = found.network.rdma
    assert (found.cluster.api, found.cluster.flavour) == ("https://api.lab.example.org:6443", "openshift")
    assert (rdma.fabric, rdma.devices, rdma.interfaces) == ("roce", ("mlx5_6", "mlx5_7"), ("net1", "net2"))
    assert (rdma.gid_index, rdma.gdr_level, rdma.cross_nic) == (3, "SYS", 1)
    assert rdma.environment == {"NCCL_IB_TIMEOUT": "22", "NCCL_MIN_NCHANNELS": "4"}
    assert found.network.tcp.interface_exclude == ("lo", "docker0")
    assert (found.resources.memory, found.resources.cpu) == ("256Gi", "64")
    assert (found.nodes.gpu_nodes, found.nccl.debug) == (("node-a1", "node-a2"), "INFO")
    assert found.notes == "Ask Ada for the key.\n\n# This is no comment.\n"


def test_every_comment_is_kept(roce: Path, tcp: Path) -> None:
    for path in (roce, tcp):
        comments = [line.strip() for line in path.read_text().splitlines() if line.strip().startswith("#")]
        kept = migrate(path, NAMED).text.splitlines()
        assert comments
        assert [comment for comment in comments if comment not in [line.strip() for line in kept]] == []
    assert "  api: https://api.lab.example.org:6443  # behind the VPN" in migrate(roce, NAMED).text.splitlines()


def test_every_change_of_meaning_is_reported_with_its_line(roce: Path) -> None:
    told = "\n".join(migrate(roce, NAMED).notes)
    for word in ("line 6: cluster.api", "cluster.flavour", "fabric", "5 is the older number for SYS", "ib_timeout"):
        assert word in told
    assert "line 66: site: does not exist today; it is kept as a comment" in told
    assert "requests equal limits now" in told


def test_what_nobody_said_is_asked_for(roce: Path) -> None:
    moved = migrate(roce)
    assert [mistake.wrong.split()[0] for mistake in moved.left] == ["image", "network.rdma"]
    assert any("--image" in text for text in moved.notes)
    assert any("--resource NAME=COUNT" in text for text in moved.notes)


def test_a_file_without_rdma_needs_only_an_image(tcp: Path) -> None:
    moved = migrate(tcp, Added(image="quay.io/team/ml:1"))
    assert moved.left == ()
    tcp.write_text(moved.text)
    found = load(tcp)
    assert (found.network.rdma.enabled, found.security.ipc_lock, found.nodes.gpu_nodes) == (False, False, ())
    assert (found.resources.memory, found.network.tcp.interface_exclude) == ("256Gi", ("lo", "docker0"))
    assert any("it named interfaces to use (eth0)" in text for text in moved.notes)
    assert any("ipc_lock: it applies to RDMA pods, and RDMA is not enabled" in text for text in moved.notes)


def test_a_file_half_way_there_keeps_what_it_has(roce: Path) -> None:
    text = roce.read_text().replace(
        "enabled: true\n", "enabled: true\n    fabric: infiniband\n    resources: {mlx.org/ib: 2}\n"
    )
    text = text.replace("  namespace:", "  flavour: kubernetes\n  namespace:").replace(
        "requires_privileged_scc: true", "ipc_lock: true"
    )
    text = text.replace("  ipc_lock: true\n  ipc_lock: true", "  ipc_lock: true")
    roce.write_text(text + "\nimage:\n  name: quay.io/team/ml:2  # ours\nports: {vscode: 9000}\n")
    moved = migrate(roce, NAMED)
    assert moved.left == ()
    roce.write_text(moved.text)
    found = load(roce)
    assert (found.cluster.flavour, found.image.name, found.ports.vscode) == ("kubernetes", "quay.io/team/ml:2", 9000)
    assert (found.network.rdma.fabric, found.network.rdma.resources) == ("infiniband", {"mlx.org/ib": 2})


def test_a_section_of_their_own_is_left_as_a_comment_and_nothing_else(tcp: Path) -> None:
    own = "  ethernet:\n    speed: 100\n\n    ports:\n      - a\n      - b\n  tcp:\n    p2p_level: |\n      NVL\n"
    tcp.write_text(tcp.read_text().replace('  tcp:\n    interface_exclude: "eth0"\n', own))
    lines = migrate(tcp, Added(image="quay.io/team/ml:1")).text.splitlines()
    at = lines.index("  # ethernet:")
    assert lines[at : at + 8] == [
        "  # ethernet:",
        "    # speed: 100",
        "",
        "    # ports:",
        "      # - a",
        "      # - b",
        "  tcp:",
        "    p2p_level: |",
    ]


def test_a_value_over_several_lines_becomes_one(roce: Path) -> None:
    roce.write_text(roce.read_text().replace('devices: "mlx5_6,mlx5_7"', 'devices: "mlx5_6,\n      mlx5_7" # both'))
    lines = migrate(roce, NAMED).text.splitlines()
    assert "    devices: [mlx5_6, mlx5_7] # both" in lines
    assert not [line for line in lines if line.strip().startswith("mlx5_7")]


def test_requests_alone_become_the_limits(tcp: Path) -> None:
    tcp.write_text(tcp.read_text().replace("limits:", "requests:"))
    tcp.write_text(migrate(tcp, Added(image="quay.io/team/ml:1")).text)
    assert load(tcp).resources.cpu == "64"


def test_a_key_given_twice_is_refused(roce: Path) -> None:
    roce.write_text(roce.read_text() + "nccl:\n  debug: WARN\n")
    with pytest.raises(InvalidInput, match="nccl is given twice, first on line 63"):
        migrate(roce)


def test_a_file_of_todays_layout_is_left_alone() -> None:
    with pytest.raises(InvalidInput, match="in today's layout already"):
        migrate(OPENSHIFT)


@pytest.mark.parametrize("text", ["", "- a\n", "word\n", "cluster: [\n"])
def test_what_is_no_cluster_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput):
        migrate(path)


def test_the_old_file_is_kept_however_often_it_is_replaced(roce: Path) -> None:
    before = roce.read_text()
    roce.chmod(0o640)
    first = replace(roce, "one\n")
    second = replace(roce, "two\n")
    assert (first.name, second.name) == ("roce.yaml.old", "roce.yaml.old.1")
    assert (first.read_text(), second.read_text(), roce.read_text()) == (before, "one\n", "two\n")
    assert roce.stat().st_mode & 0o777 == 0o640


def test_printing_changes_no_file_and_says_that_work_is_left(roce: Path) -> None:
    before = roce.read_text()
    done = CliRunner().invoke(group, ["migrate", str(roce)])
    assert done.exit_code == 1
    assert "correct: " in done.stderr
    assert done.stdout.startswith("# The lab in the cellar\n")
    assert (roce.read_text(), sorted(path.name for path in roce.parent.iterdir())) == (before, ["roce.yaml"])


def test_writing_puts_a_usable_file_in_place(roce: Path) -> None:
    words = ["migrate", str(roce), "--image", "quay.io/team/ml:1", "--resource", "openshift.io/mlx=2", "--write"]
    done = CliRunner().invoke(group, words)
    assert done.exit_code == 0
    assert load(roce).network.rdma.resources == {"openshift.io/mlx": 2}
    assert roce.with_name("roce.yaml.old").read_text() == (OLDER / "roce.yaml").read_text()
