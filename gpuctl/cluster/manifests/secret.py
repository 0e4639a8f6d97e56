"""The Secret: rendered empty, so that no output contains a secret; deploy fills it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from secrets import token_urlsafe

from gpuctl.cluster.environment import Environment, Object

SECRET = "secret"  # noqa: S105 - the word, not one
VSCODE, JUPYTER = "vscode-password", "jupyter-password"
IDENTITY, AUTHORIZED, HOST, KNOWN = "identity", "authorized", "host", "known_hosts"
OF_SSH = (IDENTITY, AUTHORIZED, HOST, KNOWN)
KEYS = (VSCODE, JUPYTER, *OF_SSH)
FILLED = "gpuctl/filled-by-deploy"

Pair = Callable[[], tuple[str, str]]


def empty(env: Environment) -> Object:
    """Return the Secret without values: a pod does not start with it, so no known password ever opens anything."""
    meta = env.meta(env.name, SECRET, {FILLED: ", ".join(KEYS)})
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque"}


def values(env: Environment, pair: Pair) -> dict[str, str]:
    """Generate values for all keys; `pair` makes an ssh key: the private half, and the public half as a line."""
    (identity, public), (host, host_public) = pair(), pair()
    return {
        VSCODE: token_urlsafe(24),
        JUPYTER: token_urlsafe(24),
        IDENTITY: identity,
        AUTHORIZED: f"{public}\n",
        HOST: host,
        # All pods share a host key, which ssh checks under the environment's name.
        KNOWN: f"{env.name} {host_public}\n",
    }


def filled(env: Environment, existing: Mapping[str, str], pair: Pair) -> Object:
    """Return the Secret as it is applied; never print it.

    `existing` is the `data` of the Secret on the cluster, or empty. Its values are kept, so that a second deploy
    changes no password. The four ssh values belong together: they are kept or generated together.
    """
    made = {key: base64.b64encode(value.encode()).decode() for key, value in values(env, pair).items()}
    whole = all(existing.get(key) for key in OF_SSH)
    kept = {key: existing[key] for key in KEYS if existing.get(key) and (whole or key not in OF_SSH)}
    return {**empty(env), "data": {**made, **kept}}
