"""Secret values of a pod, to remove them from texts: those of its Secrets, and of its own variables."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from gpuctl.core.errors import GpuctlError
from gpuctl.core.redact import ABOUT, NAMED, user_password
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.engine import typed_json

SECRET_NAME = re.compile(rf"{NAMED}{ABOUT}(?<!tokens)|auth", re.IGNORECASE)
URL_PASSWORD = re.compile(r"(?<![\w+.-])[\w+.-]++://[^\s:/@]*:([^\s/?#\"'\\]+)@")
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")  # everyone may read it
# NAME=value of .env and ini, name: value of YAML
LINE = re.compile(r"^[ \t]*(?:export[ \t]+)?[\"']?([\w.-]{1,100})[\"']?[ \t]*[:=][ \t]*(\S.*)$", re.MULTILINE)
VOLUMES = ("cephfs", "rbd", "iscsi", "flexVolume", "scaleIO", "storageos")
DIGEST_NAME = re.compile("commit|sha|revision|digest", re.IGNORECASE)  # of hexadecimal numbers that are no secrets
NO_SECRETS = ("true", "false", "yes", "no", "on", "off", "none", "null")  # values of switches such as USE_TOKEN


def secrets_of(pod: Mapping[str, Any]) -> list[str]:
    """List the Secrets that a pod uses: in environment variables, as files, to pull images."""
    spec = pod.get("spec") or {}
    volumes = spec.get("volumes") or ()
    projected = [source for volume in volumes for source in (volume.get("projected") or {}).get("sources") or ()]
    names = [
        *(item.get("name") for item in spec.get("imagePullSecrets") or ()),
        *(_nested(variable, "valueFrom", "secretKeyRef", "name") for variable in _container_items(spec, "env")),
        *(_nested(source, "secretRef", "name") for source in _container_items(spec, "envFrom")),
        *(_nested(volume, "secret", "secretName") for volume in volumes),
        *(_nested(source, "secret", "name") for source in projected),
        *(_nested(volume, "csi", "nodePublishSecretRef", "name") for volume in volumes),
        *(_nested(volume, "azureFile", "secretName") for volume in volumes),
        *(_nested(volume, kind, "secretRef", "name") for volume in volumes for kind in VOLUMES),
    ]
    return sorted({str(name) for name in names if name})


def literals(pod: Mapping[str, Any]) -> list[str]:
    """List plain-text values of environment variables whose names mark them as secret, or that look random."""
    variables = [v for v in _container_items(pod.get("spec") or {}, "env") if v.get("value")]
    return [
        v["value"]
        for v in variables
        if v["value"].lower() not in NO_SECRETS and (SECRET_NAME.fullmatch(v.get("name", "")) or _is_random(v))
    ] + [part for v in variables for part in inside(v["value"])]


def inside(value: str) -> list[str]:
    """List secrets inside a value: passwords of URLs, and those of JSON, YAML, ini and .env by their names."""
    found = [unquote(password) for password in URL_PASSWORD.findall(value)]
    for text in [*_in_json(value), *_in_lines(value)]:
        password = user_password(text)  # as a Docker login has it
        found += [text, password] if password else [text]
    return found


def _in_lines(value: str) -> Iterator[str]:
    for name, text in LINE.findall(value):
        plain = text.strip()
        if plain[:1] in ("'", '"'):
            plain = plain[1:].partition(plain[0])[0]
        if SECRET_NAME.fullmatch(name) and plain.lower() not in NO_SECRETS:
            yield plain


def _in_json(value: str) -> Iterator[str]:
    try:
        parsed = typed_json.parse(value) if value.lstrip().startswith(("{", "[")) else None
    except ValueError:
        return
    levels = [parsed]
    while levels:
        level = levels.pop()
        if isinstance(level, list):
            levels += level
        if isinstance(level, dict):
            levels += level.values()
            yield from (
                text for name, text in level.items() if isinstance(text, str) and SECRET_NAME.fullmatch(str(name))
            )


def _is_random(variable: Mapping[str, Any]) -> bool:
    return is_random(variable["value"]) and not DIGEST_NAME.search(variable.get("name", ""))


def is_random(value: str) -> bool:
    """True if a value is one word of mixed letters and digits, as generated keys are, or a long hexadecimal number."""
    mixed = all(re.search(kind, value) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return bool(re.fullmatch(r"[A-Za-z0-9+/_-]*[A-Za-z0-9]{16}[A-Za-z0-9+/=_-]*", value) and mixed) or bool(
        re.fullmatch(r"[0-9a-fA-F]{32,}", value)
    )


def _container_items(spec: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    """Collect the items of one list field from all containers."""
    kinds = ("initContainers", "containers", "ephemeralContainers")
    return [item for kind in kinds for container in spec.get(kind) or () for item in container.get(field) or ()]


def _nested(value: Any, *names: str) -> Any:
    """Return a value from nested mappings; None if any level is missing."""
    for name in names:
        value = (value or {}).get(name)
    return value


def values_of(kube: Kubectl, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Read the values of these Secrets, to remove them from the text; also returns the unreadable ones."""
    values: list[str] = []
    unread: list[str] = []
    for name in names:
        try:
            secret = kube.json(f"read the Secret {name}", "get", "secret", name, "--request-timeout=10s")
        except GpuctlError:
            unread.append(name)
            continue
        values += decoded(secret.get("data") or {})
    return values, unread


def decoded(data: Mapping[str, str]) -> list[str]:
    """Return a Secret's values as base64 and, if they are text, decoded, with the secrets inside them."""
    texts = []
    for value in data.values():
        try:
            text = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            texts.append(value)
            continue
        if secret := CERTIFICATE.sub("", text).strip():
            texts += [value, text if secret == text.strip() else secret, *inside(text)]
    return texts
