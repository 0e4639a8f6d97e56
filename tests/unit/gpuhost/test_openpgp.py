"""Fingerprints of keys without gpg."""

from __future__ import annotations

import pytest
from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.facts.openpgp import fingerprints

# Made with gpg for this test; the fingerprint is the one that gpg shows.
KEY = """-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawoW/BYJKwYBBAHaRw8BAQdAahPF1qb6YbUU7DJJX5xT+dvlTGhy9SB9aebn
CEJZb9a0BmEgdGVzdIiQBBMWCAA4FiEEvgDQWZsoLwCG03ff387OxFAintEFAmsK
FvwCGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ387OxFAintE9mAD/Ri14
OrJhYBoCzyKmeKH705XcwSZt4D+dI5EnJ1IbH1QBALTLbZmgyzcuR/kXUZ8gj73o
9py+m0ZwCMlymnpRQEcF
=rgps
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "BE00D0599B282F0086D377DFDFCECEC450229ED1"


def test_a_key_has_the_fingerprint_that_gpg_shows() -> None:
    assert fingerprints(KEY) == [FINGERPRINT]
    assert fingerprints(f"a comment\n{KEY}{KEY}") == [FINGERPRINT, FINGERPRINT]


@pytest.mark.parametrize("text", ["", "<html>404</html>", KEY.replace("mDME", "!!!!"), KEY[:120] + KEY[160:]])
def test_what_is_no_key_has_none(text: str) -> None:
    assert fingerprints(text) == []
