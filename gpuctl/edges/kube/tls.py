"""Options of the WebSocket library for the certificates and proxies of a kubeconfig."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import urlsplit


def tls(settings: Any) -> dict[str, Any]:
    """Return the TLS options for the certificates of a kubeconfig."""
    if not settings.verify_ssl:
        return {"cert_reqs": ssl.CERT_NONE, "check_hostname": False, **_client_certificate(settings)}
    known = {"ca_certs": settings.ssl_ca_cert} if settings.ssl_ca_cert else {}
    names = {} if settings.assert_hostname is None else {"check_hostname": settings.assert_hostname}
    return {"cert_reqs": ssl.CERT_REQUIRED, **known, **names, **_client_certificate(settings)}


def _client_certificate(settings: Any) -> dict[str, Any]:
    options = {
        "certfile": settings.cert_file,
        "keyfile": settings.key_file,
        "server_hostname": settings.tls_server_name,
    }
    return {name: value for name, value in options.items() if value}


def proxy(settings: Any) -> dict[str, Any]:
    """Return the proxy options for the server."""
    if not settings.proxy:
        return {}
    at = urlsplit(settings.proxy)
    auth = {"http_proxy_auth": (at.username, at.password)} if at.username else {}
    passed = {"http_no_proxy": settings.no_proxy.split(",")} if settings.no_proxy else {}
    return {"http_proxy_host": at.hostname, "http_proxy_port": at.port, **auth, **passed}
