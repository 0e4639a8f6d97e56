"""Host trees that boot: by GRUB on Debian, and by boot loader entries of grubby."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.rig.trees.host import program, put, small_server

TESTS = Path(__file__).parents[2]
CONFIG = "boot/grub/grub.cfg"
GRUB_CFG = (TESTS / "data/grub/2.06-debian12.cfg").read_text()
CLOUD = 'GRUB_CMDLINE_LINUX="console=tty0 console=ttyS0,115200 earlyprintk=ttyS0,115200 consoleblank=0"\n'
ENTRY = """title Red Hat Enterprise Linux ({0}) 9.4 (Plow)
version {0}
linux /vmlinuz-{0}
initrd /initramfs-{0}.img
options {1}
grub_users $grub_users
grub_class rhel
"""
KERNELS = ("5.14.0-427.el9.x86_64", "5.14.0-503.el9.x86_64")


def debian(root: Path) -> Path:
    """A Debian host with a real grub.cfg."""
    small_server(root)
    put(root, "/etc/default/grub", 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n')
    put(root, "/etc/default/grub.d/10_cloud.cfg", CLOUD)
    put(root, f"/{CONFIG}", GRUB_CFG)
    _install(root, "update-grub", Path(__file__).with_name("standin_update_grub.py"))
    return root


def red_hat(root: Path, options: str = "root=/dev/sda1 ro crashkernel=1G-4G:192M") -> Path:
    """A RHEL host with two kernels and a rescue image."""
    small_server(root)
    put(root, "/etc/os-release", 'ID=rhel\nID_LIKE="fedora"\nVERSION_ID="9.4"\n')
    for version in (*KERNELS, "0-rescue"):
        put(root, f"/boot/loader/entries/4f1c-{version}.conf", ENTRY.format(version, options))
    _install(root, "grubby", TESTS / "rig/standins/standin-grubby")
    return root


def _install(root: Path, name: str, source: Path) -> None:
    """Put a stand-in written in Python into a tree, with this interpreter."""
    text = source.read_text()
    program(root, name, text.replace(text.splitlines()[0], f"#!{sys.executable}", 1))


def boot(root: Path) -> None:
    """Restart the host: its kernel gets the arguments of the first boot entry."""
    line = lines(root)[0] if (root / CONFIG).exists() else entries(root)[1]
    put(root, "/proc/cmdline", line.split(maxsplit=1)[1] + "\n")
    put(root, "/proc/sys/kernel/random/boot_id", "another\n")


def lines(root: Path) -> list[str]:
    """The kernel lines of grub.cfg."""
    return [line.strip() for line in (root / CONFIG).read_text().splitlines() if line.strip().startswith("linux\t")]


def entries(root: Path) -> list[str]:
    """The options of every boot loader entry, the rescue image's first."""
    files = sorted((root / "boot/loader/entries").glob("*.conf"))
    return [line for file in files for line in file.read_text().splitlines() if line.startswith("options")]
