"""One line in one of our text files: "line:/etc/sysctl.d/99-zz-gpuctl.conf:vm.swappiness".

Other lines of the file stay; the file is created with the first line and removed with the last one.
"""

from __future__ import annotations

from typing import NamedTuple

from ..host import Host

SYSCTL = "/etc/sysctl.d/99-zz-gpuctl.conf"
MODPROBE = "/etc/modprobe.d/zz-gpuctl.conf"
LIMITS = "/etc/security/limits.d/99-zz-gpuctl.conf"
SYSTEM_LIMITS = "/etc/systemd/system.conf.d/99-zz-gpuctl.conf"
USER_LIMITS = "/etc/systemd/user.conf.d/99-zz-gpuctl.conf"
GRUB = "/etc/default/grub.d/99-zz-gpuctl.cfg"
BOOT = "/etc/gpuctl/boot.conf"
GPU_BOOT = "/etc/gpuctl/gpu.conf"

MARK = "# Written by gpuctl; `gpuctl rollback` takes it back. Lines you add are kept.\n"


class Form(NamedTuple):
    """The format of a file: how it writes a key and its value, and its header."""

    separator: str
    prefix: str = ""
    suffix: str = ""
    header: str = ""

    def text(self, key: str, value: str) -> str:
        return self.prefix + key + (self.separator + value if value else "") + self.suffix

    def value(self, line: str, key: str) -> str | None:
        """The value if the line is for this key, else None."""
        start = self.prefix + key
        if not line.startswith(start) or not line.endswith(self.suffix):
            return None
        rest = line[len(start) : len(line) - len(self.suffix)]
        if not rest:
            return ""
        return rest[len(self.separator) :].strip() if rest.startswith(self.separator) else None


FORMS = {
    SYSCTL: Form(" = "),
    MODPROBE: Form("="),
    LIMITS: Form(" "),
    SYSTEM_LIMITS: Form("=", header="[Manager]\n"),
    USER_LIMITS: Form("=", header="[Manager]\n"),
    GRUB: Form("=", prefix='GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT ', suffix='"'),
    BOOT: Form(" "),
    GPU_BOOT: Form(" "),
}


class Line:
    """One key of one of our files; its text is the value."""

    def __init__(self, place: str) -> None:
        self.path, _, self.key = place.partition(":")
        self.form = FORMS[self.path]

    def read(self, host: Host) -> str | None:
        for line in (host.read_or_none(self.path) or "").splitlines():
            value = self.form.value(line, self.key)
            if value is not None:
                return value
        return None

    def write(self, host: Host, text: str | None) -> None:
        write_lines(host, self.path, {self.key: text})


def write_lines(host: Host, path: str, desired: dict[str, str | None]) -> None:
    """Set several keys of one file, or remove those with None, in one replacement."""
    form = FORMS[path]
    opening = MARK + form.header
    lines = (host.read_or_none(path) or opening).splitlines()
    left = dict(desired)
    kept = []
    for line in lines:
        key = next((k for k in desired if form.value(line, k) is not None), None)
        value = left.pop(key, None) if key is not None else None
        if key is None:
            kept.append(line)
        elif value is not None:
            kept.append(form.text(key, value))
    kept += [form.text(key, value) for key, value in left.items() if value is not None]
    text = "".join(line + "\n" for line in kept)
    if text == opening:
        host.remove(path)
    else:
        host.replace(path, text)
