"""Log in to a cluster with a kubeconfig's credentials: its tokens, certificates and credential programs.

Credential programs (`exec` of a kubeconfig) are run here, not by the library's loader: that logs an error and continues
without credentials, so that the cluster's answer is a bare 403.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography import x509

from gpuctl.core.errors import InvalidInput
from gpuctl.core.redact import removed
from gpuctl.domain import kube_login
from gpuctl.domain.kube_errors import NotLoggedIn
from gpuctl.domain.kube_login import OPENSHIFT_TOKEN, Login
from gpuctl.edges.kube.credential_program import ProgramFailed, arguments, credential, variables
from gpuctl.edges.kube.library import (
    ConfigException,
    ConfigNode,
    Configuration,
    FileOrData,
    KubeConfigLoader,
    KubeConfigMerger,
    parse_rfc3339,
)

TOKEN = "BearerToken"  # noqa: S105 - the library's name for it
SOON_S = 10.0  # before its credentials expire, a credential program runs again
CERTIFICATE = {"clientCertificateData", "clientKeyData"}
MOST_OF_A_MESSAGE = 300  # characters


class Credentials:
    """The credentials of a context; `settings` are the library's, and stay current while it sends requests."""

    def __init__(self, doing: str, paths: Sequence[Path], context: str) -> None:
        self.doing, self.settings = doing, Configuration()
        self._lock = threading.Lock()
        try:
            self._load(paths, context)
        except (ConfigException, ValueError, OSError) as error:
            raise InvalidInput(doing, str(error)) from error
        except RecursionError as error:  # the library reads YAML in pure Python
            files = ", ".join(map(str, paths))
            raise InvalidInput(
                doing, f"the kubeconfig {files} is nested too deeply", "look for stray brackets"
            ) from error

    def rejected(self, error: NotLoggedIn) -> NotLoggedIn:
        """Return the error with the credentials that were rejected, and how to renew them."""
        return kube_login.rejected(error.doing, self.login, time.time())

    def _load(self, paths: Sequence[Path], context: str) -> None:
        config: Any = KubeConfigMerger(os.pathsep.join(map(str, paths))).config
        loader: Any = KubeConfigLoader(config, context, config_base_path=None)
        names = loader.current_context["context"]
        name = str(names.get("user") or "")
        node = config["users"].get_with_name(name, safe=True) if name and config.safe_get("users") else None
        user = node["user"] if node is not None and node.safe_get("user") else None
        program = user.value.pop("exec", None) if user is not None else None
        loader.load_and_set(self.settings)
        self.login = _login(name, self.settings)
        if user is None or program is None or self.login.kind == "token":
            return
        self._folder = str(Path(user.path or ".").absolute().parent)
        self._exec = ConfigNode("exec", program, user.path)
        self._cluster = config["clusters"].get_with_name(names["cluster"])["cluster"]
        self._run_program()
        settings: Any = self.settings  # the library declares its hook as None
        settings.refresh_api_key_hook = self._refresh

    def _refresh(self, _: Configuration) -> None:
        """Run the credential program again once its credentials expire; the library calls this before each request."""
        with self._lock:
            if self.login.expires_at is not None and time.time() > self.login.expires_at - SOON_S:
                self._run_program()

    def _run_program(self) -> None:
        self.login = login = _program_login(self._exec.value, self.login)
        try:
            status = credential(self._exec.value, self._cluster.value, self._folder)
        except ProgramFailed as error:
            raise kube_login.failed(self.doing, login, _why(str(error))) from error
        except OSError as error:
            raise kube_login.missing(self.doing, login, error.strerror or str(error)) from error
        if not ("token" in status or status.keys() >= CERTIFICATE):
            raise kube_login.failed(self.doing, login, "it printed neither a token nor a certificate with its key")
        if "token" in status:
            self.settings.api_key[TOKEN] = f"Bearer {status['token']}"
        if status.keys() >= CERTIFICATE:
            self.settings.cert_file = _file(status, "clientCertificateData")
            self.settings.key_file = _file(status, "clientKeyData")
        expiry = status.get("expirationTimestamp")
        self.login = replace(login, expires_at=parse_rfc3339(expiry).timestamp() if expiry else None)


def _why(message: str) -> str:
    """Return one line of what a credential program printed, without secrets."""
    return " ".join(removed(message)[0].split())[:MOST_OF_A_MESSAGE]


def _file(status: Mapping[str, Any], key: str) -> Any:
    """Return the path of a file with this value; the library removes it when Python ends."""
    return FileOrData(status, None, data_key_name=key, base64_file_content=False).as_file()


def _login(user: str, settings: Configuration) -> Login:
    """Describe the credentials that the kubeconfig itself holds."""
    login, key = Login(user, str(settings.host)), str(settings.api_key.get(TOKEN) or "")
    if key.startswith("Bearer "):
        token = key.removeprefix("Bearer ")
        is_openshift = token.startswith(OPENSHIFT_TOKEN)
        return replace(login, kind="token", is_openshift=is_openshift, expires_at=_token_end(token))
    if key:
        return replace(login, kind="password")
    if settings.cert_file:
        return replace(login, kind="client certificate", expires_at=_certificate_end(Path(settings.cert_file)))
    return login


def _program_login(program: object, login: Login) -> Login:
    """Describe the credentials that a program prints; ValueError if the kubeconfig names none, or is malformed."""
    if not isinstance(program, Mapping):
        raise ValueError(f"exec of the user {login.user} names no program")
    profile = kube_login.profile_of(arguments(program)) or variables(program).get("AWS_PROFILE")
    return replace(
        login,
        kind="credentials",
        program=str(program.get("command") or "its credential program"),
        profile=profile or os.environ.get("AWS_PROFILE", ""),
        install_hint=str(program.get("installHint") or ""),
    )


def _token_end(token: str) -> float | None:
    """Return when a JSON web token expires, in seconds since 1970; None if it is another kind of token."""
    parts = token.split(".")
    with contextlib.suppress(ValueError, TypeError, KeyError):
        if len(parts) == 3:
            return float(json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))["exp"])
    return None


def _certificate_end(path: Path) -> float | None:
    with contextlib.suppress(ValueError, OSError):
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()
    return None
