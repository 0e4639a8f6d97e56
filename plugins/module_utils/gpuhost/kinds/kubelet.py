"""Resources of the kubelet: CPU, memory and topology manager, and what is reserved for the system, in one file.

The key is `resources`; its value is JSON of fields of KubeletConfiguration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..kubelet import configuration, drain, rules, service
from ..kubelet.fields import FLAGS, NAMES, TYPES
from ..model import OK, PENDING, REFUSED, Knob, Reading, Refused, Unreadable, Unsupported
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
    after = service.in_force(host, kubelet, without=kubelet.place if kubelet.folder else "")
    service.merge(after, {key: _before(snapshot, kubelet, key) for key in _given_back(snapshot, kubelet, desired)})
    after.update(desired)
    _refuse_what_does_not_start(snapshot, kubelet, after, desired)
    steps = snapshot.step(f"kubelet:{kubelet.place}", _text(snapshot, kubelet, desired))
    shown = _shown(now, desired)
    reading = settled(
        knob._replace(value=_shown(desired, desired)), now=shown, boot=shown, steps=steps, notes=_notes(after)
    )
    if steps and (reason := drain.why_not(host, kubelet.options)):
        return reading.but(state=REFUSED, steps=(), reason=reason)
    stale = "" if steps else _stale(snapshot, kubelet, now)
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


def _text(snapshot: HostSnapshot, kubelet: service.Kubelet, desired: Mapping[str, Any]) -> str:
    """Text of the file: our drop-in whole, or the main file with our fields replaced and all else as it is."""
    if kubelet.folder:
        return described(json.dumps({**KIND, **desired}, indent=2) + "\n")
    now = snapshot.now(f"kubelet:{kubelet.place}")
    if now is None:
        raise Unreadable(f"{kubelet.place} is missing")
    head, _, content = now.partition("\n")
    before = {key: _before(snapshot, kubelet, key, plain=False) for key in _given_back(snapshot, kubelet, desired)}
    same = configuration.fields(content, kubelet.place)
    changes = {**before, **{key: value for key, value in desired.items() if same.get(key) != value}}
    return f"{head}\n{configuration.replaced(content, changes, kubelet.place)}" if changes else now


def _given_back(snapshot: HostSnapshot, kubelet: service.Kubelet, desired: Mapping[str, Any]) -> list[str]:
    """Fields of the main file that an earlier run may have set, and this one does not."""
    owned = snapshot.owned.get(f"kubelet:{kubelet.place}")
    if kubelet.folder or owned is None or owned.original is None:
        return []
    return [key for key in NAMES.values() if key not in desired]


def _before(snapshot: HostSnapshot, kubelet: service.Kubelet, key: str, *, plain: bool = True) -> Any:
    """A field as it was before gpuctl: its value, or in the form that `configuration.replaced` takes."""
    content = (snapshot.owned[f"kubelet:{kubelet.place}"].original or "").partition("\n")[2]
    if plain:
        return configuration.fields(content, kubelet.place).get(key)
    return configuration.original(content, key, kubelet.place)


def _shown(whole: Mapping[str, Any], desired: Mapping[str, Any]) -> str:
    """The desired fields' values in a configuration, for people."""
    return ", ".join(f"{key} {_word(whole.get(key))}" for key in desired) or "as before"


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
        try:
            policy = json.loads(text)["policyName"] if text else ""
        except (ValueError, KeyError, TypeError):
            return f"{path} is not understood: drain the node, and remove it while the kubelet is stopped"
        due = now.get(key) or ("none" if key == "cpuManagerPolicy" else "None")
        if policy and policy.lower() != str(due).lower():
            return f"{path} is of policy {policy}: drain the node, stop the kubelet, remove the file, start the kubelet"
    return ""
