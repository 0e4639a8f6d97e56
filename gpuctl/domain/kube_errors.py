"""Errors of the Kubernetes API: turn a Status object into an error with a hint."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.engine import typed_json


class NotLoggedIn(Unreachable):
    """The cluster does not accept the credentials."""


class NotACluster(Unreachable):
    """The server answers, but not like a Kubernetes API."""


class NotFound(GpuctlError):
    """The object, its namespace or its kind does not exist."""


class Conflict(GpuctlError):
    """Another manager owns a field of the change; nothing was changed. `owners`: field -> manager, if known."""

    def __init__(self, doing: str, wrong: str, hint: str = "", owners: Mapping[str, str] | None = None) -> None:
        super().__init__(doing, wrong, hint)
        self.owners = dict(owners or {})


class BudgetForbids(GpuctlError):
    """A PodDisruptionBudget does not allow the eviction now."""


class Forbidden(GpuctlError):
    """Access rights, a quota or a policy forbid the request."""


class Invalid(GpuctlError):
    """The object is invalid, or one of its fields cannot be changed."""


BUSY = (429, 502, 503, 504)
ANONYMOUS = "system:anonymous"  # to whom the API server attributes requests without credentials
LOG_IN = "log in again: what the kubeconfig holds for you is missing, wrong or has expired"
_MAY_NOT = re.compile(
    r'User "(?P<user>.*)" cannot (?P<verb>\w+) resource "(?P<what>[\w./-]+)"(?:.* namespace "(?P<at>.+)")?'
)
MOST_OF_A_PAGE = 200  # characters
_TITLE = re.compile(r"<(?:title|h1)[^>]*>(.*?)</", re.IGNORECASE | re.DOTALL)
_INVISIBLE = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_QUOTA = re.compile(r"exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)")
_SECURITY = re.compile(r"violates PodSecurity|unable to validate against any security context constraint")


def error_of(doing: str, code: int, text: str) -> GpuctlError:
    """Turn a failed response into an error. `code`: its HTTP status; `text`: its body."""
    status = _status(text)
    message = str(status.get("message") or _summary(code, text))
    if code == 401:
        return NotLoggedIn(doing, "the cluster does not know who you are", LOG_IN)
    if code == 403:
        return _forbidden(doing, message)
    if code in (404, 410):
        return NotFound(doing, message)
    if code == 409:
        owners = _owners(status)
        owned = ", ".join(f"{field} ({manager})" for field, manager in owners.items())
        hint = "nothing was changed; what another manager set is left to it"
        return Conflict(doing, f"others own {owned}" if owned else message, hint, owners)
    if code in BUSY:
        budgets = _budgets(status)
        busy = Unreachable(doing, f"the cluster is not able to answer: {message}")
        return BudgetForbids(doing, budgets) if budgets else busy
    return (Invalid if code == 422 else GpuctlError)(doing, _causes(status) or message)


def _status(text: str) -> Mapping[str, Any]:
    try:
        status = typed_json.parse(text)
    except ValueError:
        return {}
    return status if isinstance(status, dict) else {}


def _summary(code: int, text: str) -> str:
    """Return one line of an answer that is not the API's own, such as a proxy's error page, with its status."""
    line = page_line(text)
    return line if str(code) in line else f"HTTP status {code}{': ' if line else ''}{line}"


def page_line(text: str) -> str:
    """Return the title of a page, or the first line of its text."""
    title = _TITLE.search(text)
    lines = [
        line for line in _TAG.sub(" ", title[1] if title else _INVISIBLE.sub(" ", text)).splitlines() if line.strip()
    ]
    return " ".join(html.unescape(lines[0]).split())[:MOST_OF_A_PAGE] if lines else ""


def _forbidden(doing: str, message: str) -> Forbidden | NotLoggedIn:
    match = _MAY_NOT.search(message)
    if match and match["user"] == ANONYMOUS:
        return NotLoggedIn(doing, "the request carried no credentials that the cluster accepts", LOG_IN)
    if match:
        at = f" in the namespace {match['at']}" if match["at"] else " in the whole cluster"
        wrong = f'"{match["user"]}" has no permission to {match["verb"]} {match["what"]}{at}'
        return Forbidden(
            doing, wrong, "ask for a role that allows it; `kubectl auth can-i --list` shows what you may do"
        )
    if match := _QUOTA.search(message):
        wrong = f"the quota {match[1]} does not allow {match[2]} more: {match[3]} of {match[4]} is in use"
        return Forbidden(doing, wrong, "wait until others end, or ask for more; `kubectl describe quota` shows it")
    if _SECURITY.search(message):
        return Forbidden(doing, message, "the namespace's security level refuses such pods: use another, or ask for it")
    return Forbidden(doing, message)


def _owners(status: Mapping[str, Any]) -> dict[str, str]:
    """Return the managers of the fields in a server-side apply conflict: field -> manager, or the server's message."""
    owners = {}
    for cause in _listed(status):
        if field := cause.get("field"):
            manager = re.match(r'conflict with "([^"]+)"', str(cause.get("message")))
            owners[str(field)] = manager[1] if manager else str(cause.get("message"))
    return owners


def _budgets(status: Mapping[str, Any]) -> str:
    """Return what the PodDisruptionBudgets of an eviction need; "" if the answer is about no budget."""
    causes = [cause for cause in _listed(status) if cause.get("reason") == "DisruptionBudget"]
    return "; ".join(str(cause.get("message") or "a disruption budget forbids it") for cause in causes)


def _causes(status: Mapping[str, Any]) -> str:
    return "; ".join(f"{cause.get('field') or 'it'}: {cause.get('message')}" for cause in _listed(status))


def _listed(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    causes = (status.get("details") or {}).get("causes") or []
    return [cause for cause in causes if isinstance(cause, dict)]


_OBJECT = re.compile(
    r"^HTTPS?Connection(Pool)?\([^)]*\): "
)  # the library's name for the connection; the message names the server


def unreachable(doing: str, server: str, error: Exception) -> Unreachable:
    """The error for a server that did not answer, or not completely."""
    why = " ".join(str(getattr(error, "reason", None) or error).split())
    why = _OBJECT.sub("", why)
    hint = "`kubectl cluster-info` shows whether it answers; is a VPN needed?"
    if "CERTIFICATE_VERIFY_FAILED" in why or "certificate verify failed" in why:
        hint = "the kubeconfig's certificate authority is not the one that signed the server's certificate"
    return Unreachable(doing, f"{server} does not answer: {why}", hint)
