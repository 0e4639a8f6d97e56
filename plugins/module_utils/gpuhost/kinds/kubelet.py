"""Resources of the kubelet: CPU, memory and topology manager, and what is reserved for the system, in one file.

The key is `resources`; its value is JSON of fields of KubeletConfiguration.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..kubelet import configuration, drain, rules, service
from ..kubelet.fields import FLAGS, NAMES, TYPES
from ..model import OK, PENDING, REFUSED, Knob, Reading, Refused, Step, Unreadable, Unsupported
from ..resources.file import described
from ..snapshot import HostSnapshot
from ..topology import nodes, online
from ._common import read_all, settled
from ._types import Type

KIND = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


class Resources(NamedTuple):
    """A mapping of fields of `kubelet_resources`, in their checked form."""

    def check(self, value: object) -> str:
        known = value if isinstance(value, Mapping) else json.loads(str(value)) if str(value)[:1] == "{" else None
        if not isinstance(known, Mapping) or set(known) - set(NAMES.values()):
            raise ValueError(f"must be a mapping of {', '.join(NAMES.values())}")
        return json.dumps({key: known[key] for key in NAMES.values() if key in known})


def type_of(key: str) -> Type | None:
    """Type of a key's value."""
    return Resources() if key == "resources" else None


def desired_text(values: Mapping[str, Any]) -> str:
    """Value of the knob for checked values of `kubelet_resources`."""
    return json.dumps({NAMES[name]: values[name] for name in TYPES if name in values})


def read(snapshot: HostSnapshot, knobs: Sequence[Knob]) -> list[Reading]:
    """Fields in the kubelet's files, and those that they should have."""
    return read_all(snapshot, knobs, _read)


def _read(snapshot: HostSnapshot, knob: Knob) -> Reading:
    host, desired = snapshot.host, json.loads(knob.value)
    kubelet = service.read(host)
    _refuse_options(kubelet, desired)
    _refuse_later_files(snapshot, kubelet, desired)
    now = service.in_force(host, kubelet)
    steps, content = _steps(snapshot, kubelet, desired)
    after = service.in_force(host, kubelet, place=kubelet.place, content=content)
    _refuse_what_does_not_start(snapshot, kubelet, after, desired)
    given_back = [key for key in NAMES.values() if key not in desired and now.get(key) != after.get(key)]
    shown = _shown(now, [*desired, *given_back])
    due = _shown({**after, **desired}, [*desired, *given_back])
    reading = settled(knob._replace(value=due), now=shown, boot=shown, steps=steps, notes=_notes(after))
    if steps and (reason := drain.why_not(host, kubelet.options)):
        return reading.but(state=REFUSED, steps=(), reason=reason)
    stale = "" if steps else service.unsettled(host) or _stale(snapshot, kubelet, now)
    return reading.but(state=PENDING, reason=stale) if stale and reading.state == OK else reading


def _refuse_options(kubelet: service.Kubelet, desired: Mapping[str, Any]) -> None:
    options = [FLAGS[key] for key in desired if FLAGS[key] in kubelet.options]
    if options:
        raise Refused(
            f"the kubelet's command line has {', '.join(options)}, which wins over its files: remove it there"
        )


def _refuse_later_files(snapshot: HostSnapshot, kubelet: service.Kubelet, desired: Mapping[str, Any]) -> None:
    """Refuse what a drop-in that is read after ours sets."""
    paths = kubelet.drop_ins(snapshot.host)
    for path in paths:
        if path.split("/") > kubelet.place.split("/"):
            rivals = sorted(set(configuration.fields(snapshot.host.read(path), path)) & set(desired))
            if rivals:
                raise Refused(f"{path} sets {', '.join(rivals)}, and is read after {kubelet.place}: remove it there")


def _refuse_what_does_not_start(
    snapshot: HostSnapshot, kubelet: service.Kubelet, after: Mapping[str, Any], desired: Mapping[str, Any]
) -> None:
    host = snapshot.host
    lacking = rules.too_new(desired, service.version(host, kubelet)) if desired.keys() & rules.SINCE.keys() else []
    if lacking:
        raise Unsupported("; ".join(lacking))
    memory = next(
        (int(line.split()[1]) for line in host.read("/proc/meminfo").splitlines() if "MemTotal" in line), None
    )
    if memory is None:
        raise Unreadable("/proc/meminfo has no MemTotal")
    wrong = rules.problems(after, desired, cpus=online(host), nodes=sorted(nodes(host)), memory=memory * 1024)
    if wrong:
        raise Refused("; ".join(wrong))


def _steps(
    snapshot: HostSnapshot, kubelet: service.Kubelet, desired: Mapping[str, Any]
) -> tuple[tuple[Step, ...], str]:
    """Steps, and the file's content after them: our drop-in whole, or fields of the main file."""
    if kubelet.folder:
        content = json.dumps({**KIND, **desired}, indent=2) + "\n"
        return snapshot.step(f"kubelet:{kubelet.place}", described(content)), content
    content = snapshot.host.read(kubelet.place)
    now, values = configuration.texts(content, kubelet.place), configuration.fields(content, kubelet.place)
    changes = _given_back(snapshot, kubelet, desired, now)
    for key, value in desired.items():
        if values.get(key) != value:
            changes[key] = configuration.written(content, key, value)
    steps = tuple(Step(f"kubelet:{kubelet.place}:{key}", now.get(key), text) for key, text in changes.items())
    return steps, configuration.replaced(content, changes, kubelet.place) if changes else content


def _given_back(
    snapshot: HostSnapshot, kubelet: service.Kubelet, desired: Mapping[str, Any], now: Mapping[str, str]
) -> dict[str, str | None]:
    """Former texts of the main file's fields that an earlier run set, this one does not, and nobody changed since."""
    changes: dict[str, str | None] = {}
    for key in NAMES.values():
        owned = snapshot.owned.get(f"kubelet:{kubelet.place}:{key}")
        if key not in desired and owned and owned.holds(now.get(key)) and now.get(key) != owned.original:
            changes[key] = owned.original
    return changes


def _shown(whole: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Some fields' values in a configuration, for people."""
    return ", ".join(f"{key} {_word(whole.get(key))}" for key in keys) or "as before"


def _word(value: Any) -> str:
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(value)


def _notes(after: Mapping[str, Any]) -> tuple[str, ...]:
    amounts = [key for key in rules.RESERVATIONS if isinstance(after.get(key), Mapping) and after[key].get("cpu")]
    if after.get("reservedSystemCPUs") and amounts:
        return (f"reservedSystemCPUs replaces the cpu of {' and '.join(amounts)}",)
    return ()


def _stale(snapshot: HostSnapshot, kubelet: service.Kubelet, now: Mapping[str, Any]) -> str:
    """Why the kubelet does not run with its files yet, by the policies in its state files; "" if it does."""
    for path, key in zip(kubelet.states, ("cpuManagerPolicy", "memoryManagerPolicy")):
        text = snapshot.host.read_or_none(path)
        if not text and (key == "cpuManagerPolicy" or key in now):
            return f"{path} does not exist yet: the kubelet has not begun to work with its files; see its log"
        try:
            policy = json.loads(text)["policyName"] if text else ""
        except (ValueError, KeyError, TypeError):
            return f"{path} is not understood: drain the node, and remove it while the kubelet is stopped"
        due = now.get(key) or ("none" if key == "cpuManagerPolicy" else "None")
        if policy and policy.lower() != str(due).lower():
            return f"{path} is of policy {policy}: drain the node, stop the kubelet, remove the file, start the kubelet"
    return ""
