"""What a Kubernetes API says when it refuses, in words: from its Status object to an error with a hint."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gpuctl.core.errors import GpuctlError, Unreachable


class NotLoggedIn(Unreachable):
    """The cluster does not take our credentials."""


class NotACluster(Unreachable):
    """Something answers, and not as a cluster does."""


class NotThere(GpuctlError):
    """The object, its namespace or its kind is not there."""


class Conflict(GpuctlError):
    """Somebody else owns what we would change; it was left alone."""


class Forbidden(GpuctlError):
    """We may not do that there, or a quota or policy does not allow it."""


class Invalid(GpuctlError):
    """The object cannot be so, or a field of it cannot change."""


BUSY = (429, 502, 503, 504)
_MAY_NOT = re.compile(
    r'User "(?P<user>.*)" cannot (?P<verb>\w+) resource "(?P<what>[\w./-]+)"(?:.* namespace "(?P<at>.+)")?'
)
_QUOTA = re.compile(r"exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)")
_SECURITY = re.compile(r"violates PodSecurity|unable to validate against any security context constraint")


def error_of(doing: str, code: int, text: str) -> GpuctlError:
    """The error that an answer of this HTTP status stands for; `text` is its body."""
    status = _status(text)
    says = str(status.get("message") or text.strip()[:300] or f"HTTP status {code}")
    if code == 401:
        hint = "log in again: what the kubeconfig holds for you is missing, wrong or has expired"
        return NotLoggedIn(doing, "the cluster does not know who you are", hint)
    if code == 403:
        return _forbidden(doing, says)
    if code in (404, 410):
        return NotThere(doing, says)
    if code == 409:
        return Conflict(doing, _conflict(status, says), "nothing was changed; what another manager set is left to it")
    if code in BUSY:
        return Unreachable(doing, f"the cluster is not able to answer: {says}")
    return (Invalid if code == 422 else GpuctlError)(doing, _causes(status) or says)


def _status(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _forbidden(doing: str, says: str) -> Forbidden:
    if found := _MAY_NOT.search(says):
        at = f" in the namespace {found['at']}" if found["at"] else " in the whole cluster"
        wrong = f'"{found["user"]}" may not {found["verb"]} {found["what"]}{at}'
        return Forbidden(
            doing, wrong, "ask for a role that allows it; `kubectl auth can-i --list` shows what you may do"
        )
    if found := _QUOTA.search(says):
        wrong = f"the quota {found[1]} does not allow {found[2]} more: {found[3]} of {found[4]} is in use"
        return Forbidden(doing, wrong, "wait until others end, or ask for more; `kubectl describe quota` shows it")
    if _SECURITY.search(says):
        return Forbidden(doing, says, "the namespace's security level refuses such pods: use another, or ask for it")
    return Forbidden(doing, says)


def _conflict(status: Mapping[str, Any], says: str) -> str:
    """Who owns which field, for a conflict of server-side apply."""
    causes = _listed(status)
    owned = [f"{cause.get('field')} ({cause.get('message')})" for cause in causes if cause.get("field")]
    return f"others own {', '.join(owned)}" if owned else says


def _causes(status: Mapping[str, Any]) -> str:
    return "; ".join(f"{cause.get('field') or 'it'}: {cause.get('message')}" for cause in _listed(status))


def _listed(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    causes = (status.get("details") or {}).get("causes") or []
    return [cause for cause in causes if isinstance(cause, dict)]


_OBJECT = re.compile(r"^HTTPS?Connection(Pool)?\([^)]*\): ")  # how the library names what failed; the server is told


def unreachable(doing: str, server: str, error: Exception) -> Unreachable:
    """A server that did not answer, or not to its end."""
    why = " ".join(str(getattr(error, "reason", None) or error).split())
    why = _OBJECT.sub("", why)
    hint = "`kubectl cluster-info` shows whether it answers; is a VPN needed?"
    if "CERTIFICATE_VERIFY_FAILED" in why or "certificate verify failed" in why:
        hint = "the kubeconfig's certificate authority is not the one that signed the server's certificate"
    return Unreachable(doing, f"{server} does not answer: {why}", hint)
