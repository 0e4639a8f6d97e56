"""Public keys: what passes, what is refused, and that nothing but type and key goes into the pod."""

from __future__ import annotations

import base64

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.ssh_keys import pair
from gpuctl.eks.gpu_pod import public_keys

DOING = "use the key"


def key() -> str:
    return pair()[1]


def test_a_line_is_rebuilt_from_type_and_key() -> None:
    line = key()
    (parsed,) = public_keys.parse(f"\n# a comment\n{line} me@laptop evil\x1b[2J\n", "github:me", DOING)
    assert parsed.line == f"{line} github:me"


def test_a_file_name_becomes_one_word() -> None:
    (parsed,) = public_keys.parse(key(), "file:my key\n.pub", DOING)
    assert parsed.origin == "file:my_key_.pub"


def small_rsa() -> str:
    def part(content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + content

    blob = part(b"ssh-rsa") + part(b"\x01\x00\x01") + part(b"\x00" + b"\xff" * 128)
    return f"ssh-rsa {base64.b64encode(blob).decode()}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'command="sh" {key()}', "line 1: it does not begin with a type"),
        (f"from=* {key()}", "line 1: it does not begin with a type"),
        ("ssh-ed25519", "what follows its type is no key"),
        (key()[:-9], "cut off or damaged"),
        (key().replace("ssh-ed25519", "ssh-rsa"), "of another type"),
        ("ssh-dss AAAAB3NzaC1kc3M=", "does not begin with a type"),
        (small_rsa(), "less than 2048 bits"),
        (pair()[0], "it holds a private key"),
        ("<html>not found</html>", "does not begin with a type"),
    ],
)
def test_what_is_no_key_is_refused_without_its_content(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        public_keys.parse(text, "file:a", DOING)
    assert not any(word in str(refused.value) for word in text.split() if len(word) > 20)


def test_a_key_of_two_sources_counts_once_and_is_revoked_by_fingerprint_or_origin() -> None:
    one, two = key(), key()
    keys = public_keys.merged(
        public_keys.parse(one, "agent", DOING), public_keys.parse(f"{one}\n{two}", "github:me", DOING)
    )
    assert [each.origin for each in keys] == ["agent", "github:me"]
    assert public_keys.without(keys, ["github:me"], DOING) == keys[:1]
    assert public_keys.without(keys, [keys[0].fingerprint], DOING) == keys[1:]
    with pytest.raises(InvalidInput, match="no key is SHA256:none"):
        public_keys.without(keys, ["agent", "SHA256:none"], DOING)


def test_what_is_written_is_read_and_a_line_of_somebody_else_is_not() -> None:
    keys = public_keys.parse(f"{key()}\n{key()}", "agent", DOING)
    assert public_keys.read(public_keys.text(keys) + 'command="x" ssh-ed25519 AAAA') == keys


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a--b", "a-", "a" * 40, "../x", "a b"])
def test_names_that_github_has_not_are_refused(name: str) -> None:
    assert not public_keys.GITHUB_USER.fullmatch(name)
