"""Explain credentials that a cluster rejects, or that cannot be obtained: whose they are, and how to renew them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from gpuctl.core.redact import removed
from gpuctl.domain.kube_errors import NotLoggedIn

# Credential program -> the command that logs in again. Sources: AWS CLI "aws sso login", aws-iam-authenticator's README
# (it uses the AWS SDK's credentials), Azure kubelogin's README (its default mode uses az's login), Google Cloud's page
# on gke-gcloud-auth-plugin, Teleport "tsh login", OCI CLI "oci session authenticate", DigitalOcean "doctl auth init".
RENEWALS = {
    "aws": "aws sso login",
    "aws-iam-authenticator": "aws sso login",
    "doctl": "doctl auth init",
    "gke-gcloud-auth-plugin": "gcloud auth login",
    "kubelogin": "az login",
    "oci": "oci session authenticate",
    "oc": "oc login",
    "tsh": "tsh login",
}
OPENSHIFT_TOKEN = "sha256~"  # noqa: S105 - how OpenShift's OAuth tokens begin
# What kubectl prints about a credential program (client-go, plugin/pkg/client/auth/exec), and lines of its log.
_MISSING = re.compile(r"getting credentials: exec: executable (.+) not found")
_FAILED = re.compile(r"getting credentials: exec: executable (.+) failed with exit code (\d+)")
_HELP_END = "client-go-credential-plugins"  # ends its text about a missing program; the kubeconfig's hint follows
_LOG_LINE = re.compile(r"[EWI]\d{4} ")
_REJECTED = ("(Unauthorized)", "must be logged in to the server")
TRY_OTHER = "log in as you do for kubectl; `kubectl auth can-i --list` then shows whether it works"


@dataclass(frozen=True)
class Login:
    """The credentials of a kubeconfig's user.

    `kind`: "token", "client certificate", "password", a credential program's "credentials", or "" for none.
    `program`, `profile`, `install_hint`: of a credential program. `expires_at`: seconds since 1970, None if unknown.
    """

    user: str
    server: str
    kind: str = ""
    program: str = ""
    profile: str = ""
    install_hint: str = ""
    is_openshift: bool = False
    expires_at: float | None = None

    @property
    def description(self) -> str:
        origin = f" from {self.program}" if self.program else ""
        return f"the {self.kind}{origin} of the user {self.user}"


def rejected(doing: str, login: Login, now: float) -> NotLoggedIn:
    """The error for a cluster that rejects the credentials."""
    if not login.kind:
        wrong = f"the kubeconfig has no credentials for the user {login.user}"
    elif login.expires_at is not None and login.expires_at < now:
        wrong = f"{login.description} expired on {_date(login.expires_at)}"
    else:
        wrong = f"the cluster rejects {login.description}"
    return NotLoggedIn(doing, wrong, renewal(login))


def failed(doing: str, login: Login, why: str) -> NotLoggedIn:
    """The error for a credential program that failed."""
    return NotLoggedIn(doing, f"{login.program}, which logs in the user {login.user}, failed: {why}", renewal(login))


def missing(doing: str, login: Login, why: str) -> NotLoggedIn:
    """The error for a credential program that cannot be started."""
    wrong = f"{login.program}, which logs in the user {login.user}, cannot be started: {why}"
    return NotLoggedIn(doing, wrong, " ".join(login.install_hint.split()) or f"install {login.program}")


def of_kubectl(doing: str, login: Login, stderr: str) -> NotLoggedIn | None:
    """The error for a login that failed in kubectl; None if its error output is about something else."""
    if match := _MISSING.search(stderr):
        hint = stderr.partition(_HELP_END)[2]
        return missing(doing, replace(login, program=match[1], install_hint=hint), "it is not installed")
    if match := _FAILED.search(stderr):
        own = ("getting credentials", "Unable to connect")
        lines = [line.strip() for line in stderr.splitlines() if line.strip() and not _LOG_LINE.match(line)]
        said = [line for line in lines if not any(text in line for text in own)]
        why = ": ".join([f"exit code {match[2]}", *(removed(line)[0] for line in said[-1:])])
        return failed(doing, replace(login, program=match[1]), why)
    if any(text in stderr for text in _REJECTED):
        return NotLoggedIn(doing, f"the cluster rejects the credentials of the user {login.user}", TRY_OTHER)
    return None


def renewal(login: Login) -> str:
    """The advice that renews these credentials."""
    program = login.program.rpartition("/")[2]
    if login.is_openshift:
        return f"renew it: `oc login {shlex.quote(login.server)}`"
    if command := RENEWALS.get(program):
        profile = f" --profile {shlex.quote(login.profile)}" if login.profile and command.startswith("aws ") else ""
        return f"log in again: `{command}{profile}`"
    if program:
        return f"log in again: `kubectl get pods` in a terminal runs {program}, too, which may ask for it"
    if login.kind == "client certificate":
        return "ask for a new certificate where this one was issued; kubeadm: `kubeadm certs renew admin.conf`"
    return TRY_OTHER


def profile_of(arguments: Sequence[str]) -> str:
    """The AWS profile among a program's arguments; "" if there is none."""
    for at, word in enumerate(arguments):
        if word == "--profile" and at + 1 < len(arguments):
            return arguments[at + 1]
        if word.startswith("--profile="):
            return word.removeprefix("--profile=")
    return ""


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
