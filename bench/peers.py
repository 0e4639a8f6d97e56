"""The same settings for the other tools: a playbook with one task per setting, and a pyinfra deploy."""

from __future__ import annotations

from typing import Any

import yaml

from bench.settings import Setting

SYSCTL_FILE = "/etc/sysctl.d/90-bench.conf"
TMPFILES = "/etc/tmpfiles.d/90-bench.conf"
SET = (
    'for f in {path}; do case "$(cat $f)" in {value}|*"[{value}]"*) ;; *) echo {value} > $f; echo changed;; esac; done'
)


def playbook(settings: list[Setting], strategy: str = "linear") -> str:
    """A play with one task per setting, and one for the file that keeps kernel values over a reboot."""
    tasks = [{"name": f"{s.kind} {s.key}", **_task(s)} for s in settings]
    kept = {"dest": TMPFILES, "content": tmpfiles(settings), "mode": "0644"}
    tasks.append({"name": "over a reboot", "ansible.builtin.copy": kept})
    play = {"name": "Tune", "hosts": "all", "gather_facts": True, "strategy": strategy, "tasks": tasks}
    return yaml.safe_dump([play], sort_keys=False, width=1000)


def _task(setting: Setting) -> dict[str, Any]:
    if setting.kind == "sysctl":
        parameters = {
            "name": setting.key,
            "value": setting.value,
            "sysctl_file": SYSCTL_FILE,
            "sysctl_set": True,
            "reload": False,
        }
        return {"ansible.posix.sysctl": parameters}
    if setting.kind == "file":
        return {"ansible.builtin.copy": {"dest": setting.key, "content": setting.value, "mode": "0644"}}
    if setting.kind == "unit":
        return {"ansible.builtin.systemd_service": {"name": setting.key, "enabled": False}}
    command = SET.format(path=setting.path, value=setting.value)
    return {"ansible.builtin.shell": {"cmd": command}, "register": "said", "changed_when": "'changed' in said.stdout"}


def deploy(settings: list[Setting]) -> str:
    """A pyinfra deploy: its operations if it has one, else a command that reads the kernel file first."""
    lines = ["from io import StringIO", "from pyinfra import host", "from pyinfra.facts.server import Command"]
    lines.append("from pyinfra.operations import files, server, systemd")
    for s in settings:
        if s.kind == "sysctl":
            value = s.value.split() if " " in s.value else s.value
            lines.append(f"server.sysctl(key={s.key!r}, value={value!r}, persist=True, persist_file={SYSCTL_FILE!r})")
        elif s.kind == "file":
            lines.append(f"files.put(src=StringIO({s.value!r}), dest={s.key!r}, mode='644')")
        elif s.kind == "unit":
            lines.append(f"systemd.service(service={s.key!r}, enabled=False, running=None)")
        else:
            command = f"cat {s.path} | sort -u | tr '\\n' ' '"
            right = f"held == {s.value!r} or {f'[{s.value}]'!r} in held"
            lines.append(f"held = host.get_fact(Command, command={command!r}).strip()")
            lines.append(f"if not ({right}): server.shell(commands=[{SET.format(path=s.path, value=s.value)!r}])")
    lines.append(f"files.put(src=StringIO({tmpfiles(settings)!r}), dest={TMPFILES!r}, mode='644')")
    return "\n".join(lines) + "\n"


def tmpfiles(settings: list[Setting]) -> str:
    """The file by which systemd-tmpfiles sets kernel values at boot."""
    return "".join(f"w {s.path} - - - - {s.value}\n" for s in settings if s.kind in ("thp", "cpu"))


def reader(settings: list[Setting], kept: str) -> str:
    """The floor's program: reads the same values, and the file that keeps them, without decisions."""
    patterns = [s.path for s in settings]
    return (
        "import glob, json\n"
        "def read(path):\n"
        "    try:\n"
        "        with open(path) as f: return f.read()\n"
        "    except OSError: return None\n"
        f"found = {{p: [read(f) for f in glob.glob(p)] for p in {patterns!r}}}\n"
        f"found['kept'] = read({kept!r})\n"
        "print(json.dumps(found))\n"
    )
