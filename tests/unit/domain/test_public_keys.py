"""Public keys: what passes, what is refused, and that nothing but type and key goes into the pod."""

from __future__ import annotations

import base64

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.domain import public_keys
from gpuctl.edges.ssh_keys import pair

DOING = "use the key"


def key() -> str:
    return pair()[1]


def test_a_line_is_rebuilt_from_type_and_key() -> None:
    line = key()
    (parsed,) = public_keys.parse(f"\n# a comment\n{line} me@laptop evil\x1b[2J\n", "github:me", DOING)
    assert parsed.line == f"{line} github:me"


def test_a_file_name_becomes_one_word() -> None:
    (parsed,) = public_keys.parse(key(), "file:my key\n.pub", DOING)
    assert parsed.origins == ("file:my_key_.pub",)


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
    # Keys are made anew in each process.
    ids=["option", "option without quotes", "type alone", "cut", "type", "dsa", "small rsa", "private", "page"],
)
def test_what_is_no_key_is_refused_without_its_content(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        public_keys.parse(text, "file:a", DOING)
    assert not any(word in str(refused.value) for word in text.split() if len(word) > 20)


def test_a_key_of_two_sources_counts_once_has_both_origins_and_goes_with_the_last() -> None:
    one, two = key(), key()
    keys = public_keys.merged(
        public_keys.parse(one, "agent", DOING), public_keys.parse(f"{one}\n{two}", "github:me", DOING)
    )
    assert [each.origins for each in keys] == [("agent", "github:me"), ("github:me",)]
    left = public_keys.without(keys, ["github:me"], DOING)
    assert [(each.data, each.origins) for each in left] == [(keys[0].data, ("agent",))]
    assert public_keys.lost_origin(keys, left) == left
    assert public_keys.without(left, ["agent"], DOING) == []
    assert public_keys.without(keys, ["agent", "github:me"], DOING) == []
    assert public_keys.without(keys, [keys[0].fingerprint], DOING) == keys[1:]
    with pytest.raises(InvalidInput, match="no key is SHA256:none"):
        public_keys.without(keys, ["agent", "SHA256:none"], DOING)


def test_an_origin_that_two_people_may_have_is_not_revoked() -> None:
    keys = public_keys.parse(f"{key()}\n{key()}", "file:id_ed25519.pub", DOING)
    with pytest.raises(InvalidInput, match="several keys have the origin") as refused:
        public_keys.without(keys, ["file:id_ed25519.pub"], DOING)
    assert all(each.fingerprint in refused.value.hint for each in keys)


def test_what_is_written_is_read_and_a_line_of_somebody_else_is_unknown() -> None:
    keys = public_keys.merged(
        public_keys.parse(f"{key()}\n{key()}", "agent", DOING), public_keys.parse(key(), "github:me", DOING)
    )
    keys = public_keys.merged(keys, public_keys.parse(keys[0].line, "github:me", DOING))
    content = public_keys.text(keys)
    assert public_keys.read(content) == public_keys.Authorized(keys, {})
    more = public_keys.read(f'{content}\n# a comment\ncommand="x" ssh-ed25519 AAAA\n{key()} \x1b[2J,,b\n')
    assert list(more.unknown) == [6]
    assert more.keys[-1].origins == ("_2J", "b")


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a--b", "a-", "a" * 40, "../x", "a b"])
def test_names_that_github_has_not_are_refused(name: str) -> None:
    assert not public_keys.GITHUB_USER.fullmatch(name)
