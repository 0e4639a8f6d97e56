"""Secrets of many kinds, made up, in the texts in which they stand in logs, variables and manifests."""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

WORD = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"


@dataclass(frozen=True)
class Planted:
    """A secret and the text around it."""

    kind: str
    secret: str
    text: str


def _letters(at: random.Random, count: int, of: str = WORD) -> str:
    return "".join(at.choice(of) for _ in range(count))


def _password(at: random.Random) -> str:
    return f"Pw{_letters(at, 10)}7"


def _jwt(at: random.Random) -> str:
    return f"eyJ{_letters(at, 30)}.eyJ{_letters(at, 40)}.{_letters(at, 43)}"


def _pem(at: random.Random) -> str:
    return "\n".join(_letters(at, 64) for _ in range(3)) + f"\n{_letters(at, 20)}=="


def _login(at: random.Random) -> str:
    return base64.b64encode(f"robot:{_password(at)}".encode()).decode()


Make = Callable[[random.Random], str]
# kind -> (the secret, the texts it stands in)
KINDS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "password": (_password, ("connecting with password: {} to db", "DB_PASSWORD={} torchrun train.py")),
    "password in JSON": (_password, ('{{"user": "app", "password": "{}"}}', "login(password='{}')")),
    "password of an argument": (_password, ("train.py --db-password {} --fast", '["--password", "{}", "-v"]')),
    "password in a URL": (_password, ("postgres://app:{}@db:5432/x", "redis://:{}@cache/0")),
    "password of .netrc": (_password, ("machine git.example.org login bob password {}",)),
    "password of curl": (_password, ("curl -u bob:{} https://example.org/data",)),
    "bearer token": (lambda at: _letters(at, 40), ("Authorization: Bearer {}", "-H 'authorization: Bearer {}' x")),
    "JSON web token": (_jwt, ("token is {} until noon", "id={}")),
    "AWS key id": (lambda at: f"AKIA{_letters(at, 16, UPPER)}", ("using key {} of the profile",)),
    "AWS secret key": (lambda at: _letters(at, 40), ("aws_secret_access_key = {}", "AWS_SECRET_ACCESS_KEY={}")),
    "GitHub token": (lambda at: f"ghp_{_letters(at, 36)}", ("git clone with {}", "https://{}@github.com/a/b.git")),
    "GitLab token": (lambda at: f"glpat-{_letters(at, 20)}", ("registry login {} refused",)),
    "Hugging Face token": (lambda at: f"hf_{_letters(at, 34)}", ("401 for {}: gated model",)),
    "OpenAI key": (lambda at: f"sk-proj-{_letters(at, 40)}", ("Incorrect API key provided: {}",)),
    "NVIDIA key": (lambda at: f"nvapi-{_letters(at, 60)}", ("nvcr.io login with {}",)),
    "Weights & Biases key": (lambda at: _letters(at, 40, HEX), ("WANDB_API_KEY={}", "wandb_key: {}")),
    "Google key": (lambda at: f"AIza{_letters(at, 35)}", ("GET /maps?key={}&z=1",)),
    "Slack webhook": (
        lambda at: f"T{_letters(at, 8, UPPER)}/B{_letters(at, 8, UPPER)}/{_letters(at, 24)}",
        ("POST https://hooks.slack.com/services/{} 404",),
    ),
    "Docker login": (_login, ('{{"auths": {{"nvcr.io": {{"auth": "{}"}}}}}}',)),
    "presigned URL": (lambda at: _letters(at, 64, HEX), ("GET https://b.s3.amazonaws.com/x?X-Amz-Signature={}&y=1",)),
    "session cookie": (lambda at: _letters(at, 26), ("Set-Cookie: session={}; Path=/",)),
    "private key": (_pem, ("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",)),
}


def planted(each: int, seed: int = 7) -> Iterator[Planted]:
    """Secrets of every kind, `each` of them, in turn in each of its texts."""
    at = random.Random(seed)  # noqa: S311 - the secrets are made up
    for kind, (make, texts) in KINDS.items():
        for number in range(each):
            secret = make(at)
            yield Planted(kind, secret, texts[number % len(texts)].format(secret))


def leaked(secrets: list[Planted], text: str) -> list[str]:
    """Kinds of the secrets of which a line is in a text."""
    return [one.kind for one in secrets if any(line in text for line in one.secret.splitlines())]
