"""Lines inside JSON: records of container runtimes, journald and log shippers, and exports of log stores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

# Docker and Fluent Bit; journald; stern, Vector and Logstash; Vector's and zap's short form; logcli; Google Cloud
# Logging; CloudWatch Logs Insights; Splunk. The first that is text counts.
_TEXTS = ("log", "MESSAGE", "message", "msg", "line", "textPayload", "@message", "_raw")
_DOCKER = {"log", "stream", "time", "attrs"}  # keys of Docker's json-file, which alone tells a part by its missing end
_PARTS = {"_p": "P", "logtag": "P", "partial_message": "true", "CONTAINER_PARTIAL_MESSAGE": "true"}
# Where a record names the container, the stream or the host that it comes from: the first row with a value counts.
_ORIGINS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("kubernetes", "pod_name"), ("kubernetes", "container_name")),  # Fluent Bit, Fluentd, Vector
    (("kubernetes", "pod", "name"), ("kubernetes", "container", "name")),  # Filebeat
    (("podName",), ("containerName",)),  # stern
    (("kubernetes_pod_name",), ("kubernetes_container_name",)),
    (("pod",), ("container",)),  # labels of Loki
    (("labels", "pod"), ("labels", "container")),  # logcli -o jsonl
    (("resource", "labels", "pod_name"), ("resource", "labels", "container_name")),  # Google Cloud Logging
    (("CONTAINER_NAME",),),  # Docker's journald driver
    (("container_name",),),  # Docker's fluentd driver
    (("logStreamName",),),  # CloudWatch
    (("@logStream",),),
    (("filename",),),  # labels of Loki
    (("labels", "filename"),),
    (("_HOSTNAME",),),  # journald
)
_MOST = 256 << 20  # characters of one document, however many lines it has
_OPENS = frozenset("{[\x1e")  # the last one begins a record of journalctl -o json-seq
_DEEPEST = 4  # a record of Docker may be the text of one of Fluent Bit, which is an event of CloudWatch


class Record(NamedTuple):
    """A line and the container, stream or host that printed it.

    `whole`: False for a part of a line; None for a record of Docker, where only the last part has a line end.
    """

    text: str
    whole: bool | None = True
    origin: str | None = None


def read(text: str) -> list[Record] | None:
    """Records of a JSON text: one record, a list of them, or a log store's export; None if it is something else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # cut, or no JSON
        return None
    return _records(value, None, 0)


def _records(value: object, origin: str | None, depth: int) -> list[Record] | None:
    if depth > _DEEPEST:
        return None
    if isinstance(value, list):
        return [record for item in value for record in _records(item, origin, depth + 1) or ()] or None
    if not isinstance(value, dict):
        return None
    if isinstance(inner := value.get("_source", value.get("result")), dict):  # Elasticsearch; Splunk
        return _records(inner, origin, depth + 1)
    if (exported := _exported(value)) is not None:
        return _records(exported, origin, depth + 1) or []
    return _record(value, _origin(value) or origin, depth)


def _exported(value: Mapping[str, Any]) -> list[object] | None:
    """Records of an export, oldest first; None if it is none."""
    hits = _inside(value, ("hits", "hits"))  # Elasticsearch
    events = value.get("events")  # CloudWatch: get-log-events, filter-log-events
    streams = _inside(value, ("data", "result"))  # Loki's API
    if isinstance(streams, list):
        return _of_loki(streams)
    return events if isinstance(events, list) else hits if isinstance(hits, list) else None


def _of_loki(streams: Sequence[Any]) -> list[object] | None:
    """Lines of all streams by time; Loki lists the newest first unless it is asked otherwise."""
    timed: list[tuple[int, object]] = []
    for stream in streams:
        if not isinstance(stream, dict) or not isinstance(stream.get("values"), list):
            return None
        labels = stream.get("stream")
        values = [value for value in stream["values"] if isinstance(value, list) and len(value) > 1]
        lines = [
            (int(time) if str(time).isdecimal() else 0, {"labels": labels, "line": line}) for time, line, *_ in values
        ]
        timed += reversed(lines) if lines and lines[0][0] > lines[-1][0] else lines
    return [record for _, record in sorted(timed, key=lambda line: line[0])]


def _record(value: Mapping[str, Any], origin: str | None, depth: int) -> list[Record] | None:
    text = next((text for name in _TEXTS if (text := _text(name, value.get(name))) is not None), None)
    if text is None:
        return None
    if text.lstrip()[:1] == "{" and (nested := _nested(text, origin, depth)) is not None:
        return nested
    docker = value.keys() <= _DOCKER and "stream" in value
    part = _is_part(value)
    *lines, last = text.split("\n")
    records = [Record(f"{line}\n", None if docker else True, origin) for line in lines]
    if last or not lines:
        records.append(Record(last if docker or part else f"{last}\n", None if docker else not part, origin))
    return records


def _nested(text: str, origin: str | None, depth: int) -> list[Record] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _records(value, origin, depth + 1) if isinstance(value, dict) else None


def _is_part(value: Mapping[str, Any]) -> bool:
    return any(str(value.get(name, "")).lower() == mark.lower() for name, mark in _PARTS.items())


def _text(name: str, value: object) -> str | None:
    """Text of a field; journald writes what is no UTF-8 as a list of bytes, and a repeated field as a list of texts."""
    if isinstance(value, str):
        return value
    if name != "MESSAGE" or not isinstance(value, list) or not value:
        return None
    if all(isinstance(item, str) for item in value):
        return "\n".join(value)
    if all(isinstance(item, int) and 0 <= item < 256 for item in value):
        return bytes(value).decode("utf-8", "replace")
    return None


def _origin(value: Mapping[str, Any]) -> str | None:
    for paths in _ORIGINS:
        names = [name for path in paths if isinstance(name := _inside(value, path), str) and name]
        if names:
            return " ".join(names)
    return None


def _inside(value: object, path: Sequence[str]) -> object:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def documents(lines: Iterable[str]) -> Iterator[str | list[Record]]:
    """Lines as they come, and in place of JSON of a collector, in one line or in many, its records."""
    document: list[str] = []
    size = 0
    for line in lines:
        if not document and line[:1] not in _OPENS:
            yield line
            continue
        if document:
            document.append(line)
            size += len(line)
            # In JSON no line begins with #: what opened the document was something else.
            if line[:1] in ("}", "]", "#") or size > _MOST:
                yield from _document(document)
                document = []
            continue
        stripped = line.strip(" \r\n\x1e")
        if stripped in ("{", "["):
            document, size = [line], len(line)
        elif stripped[1:2] in ('"', "{", " ") and (records := read(stripped)) is not None:
            yield records
        else:
            yield line
    yield from _document(document)


def _document(lines: list[str]) -> Iterator[str | list[Record]]:
    records = read("\n".join(lines)) if lines else None
    if records is None:
        yield from lines
    else:
        yield records
