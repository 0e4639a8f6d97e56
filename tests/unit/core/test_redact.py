"""Secrets are removed, other text stays."""

from __future__ import annotations

import base64

import pytest

from gpuctl.core.redact import GONE, has_credential, removed

GO = {
    "Authorization: Bearer abcdef0123456789": f"Authorization: Bearer {GONE}",
    "postgres://app:s3cr3t@db:5432/x": f"postgres://app:{GONE}@db:5432/x",
    "redis://:s3cr3t@db/0": f"redis://:{GONE}@db/0",
    "key AKIAIOSFODNN7EXAMPLE used": f"key {GONE} used",
    "aws_secret_access_key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": f"aws_secret_access_key={GONE}",
    "      DB_PASSWORD:  hunter2 and more": f"      DB_PASSWORD:  {GONE}",
    "DB_PASSWORD=hunter2 next": f"DB_PASSWORD={GONE} next",
    '{"api_key": "abc\\"def", "n": 1}': f'{{"api_key": "{GONE}", "n": 1}}',
    "token ghp_0123456789abcdefghijABCDEFGHIJ012345": f"token {GONE}",
    "HF hf_abcdefghijklmnopqrstuvwxyz": f"HF {GONE}",
    "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF_123": f"jwt {GONE}",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----": (
        f"-----BEGIN RSA PRIVATE KEY-----{GONE}-----END RSA PRIVATE KEY-----"
    ),
    "INFO connecting with password: hunter2x to db": f"INFO connecting with password: {GONE} to db",
    "x password = hunter2x": f"x password = {GONE}",
    r'msg="{\"password\":\"hunter2x\",\"n\":1}"': rf'msg="{{\"password\":\"{GONE}\",\"n\":1}}"',
    "{'password': 'hunter 2x', 'n': 1}": f"{{'password': '{GONE}', 'n': 1}}",
    "      --db-password\n      hunter2x\n      --verbose": f"      --db-password\n      {GONE}\n      --verbose",
    "torchrun t.py --wandb_key=0123abcd --sort_key=name": f"torchrun t.py --wandb_key={GONE} --sort_key=name",
    "run --password hunter2x --fast": f"run --password {GONE} --fast",
    '["--token", "hunter2x", "-v"]': f'["--token", "{GONE}", "-v"]',
    "Authorization: Token hunter2x": f"Authorization: Token {GONE}",
    "-H 'authorization: hunter2x' x": f"-H 'authorization: {GONE}' x",
    "curl -u admin:hunter2x https://x": f"curl -u admin:{GONE} https://x",
    r"password=ab\cd1 x": f"password={GONE} x",
    "Cloning https://0123abcd@git.example.org/ml.git": f"Cloning https://{GONE}@git.example.org/ml.git",
    "pip install git+HTTPS://0123abcd@host/ml.git": f"pip install git+HTTPS://{GONE}@host/ml.git",
    "curl --user admin:hunter2x x": f"curl --user admin:{GONE} x",
    "postgres://u:p@ss@host/x": f"postgres://u:{GONE}@host/x",
    "key=AIzaSyA-0123456789abcdefghijABCDEFGHIJK x": f"key={GONE} x",
    "npm_0123456789abcdefghijABCDEFGHIJ": GONE,
    "https://hooks.slack.com/services/T0/B1/abcDEF": f"https://hooks.slack.com/services/{GONE}",
    "GET /x?a=1&X-Amz-Signature=0a1b2c&b=2": f"GET /x?a=1&X-Amz-Signature={GONE}&b=2",
    '{"auths": {"r.example.org": {"auth": "dXNlcjpwYXNz"}}}': f'{{"auths": {{"r.example.org": {{"auth": "{GONE}"}}}}}}',
    "Set-Cookie: session=abc; Path=/": f"Set-Cookie: {GONE}",
    "machine x login bob password hunter2x": f"machine x login bob password {GONE}",
    "Server=db;User ID=sa;Pwd=hunter2x;X=1": f"Server=db;User ID=sa;Pwd={GONE};X=1",
    "root:$6$saltsalt$0123456789abcdefghijABCDEFGHIJ:1": f"root:{GONE}:1",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQ\n-----END PGP PRIVATE KEY BLOCK-----": (
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----{GONE}-----END PGP PRIVATE KEY BLOCK-----"
    ),
    "AccountKey=ab3d5f==;EndpointSuffix=x": f"AccountKey={GONE};EndpointSuffix=x",
    "step 1\nMIIEabc/+\nabc==\n-----END RSA PRIVATE KEY-----\nstep 2": (
        f"step 1\n{GONE}-----END RSA PRIVATE KEY-----\nstep 2"
    ),
    "GET /x?sig=abcdef0123456789abcdef%3D&b=2": f"GET /x?sig={GONE}&b=2",
    'Cookie: a="x"; session=hunter2x': f"Cookie: {GONE}",
    "{'Cookie': 'a=\"x\"; session=hunter2x', 'n': 1}": f"{{'Cookie': '{GONE}', 'n': 1}}",
    "VAULT_SECRET_ID=hunter2x": f"VAULT_SECRET_ID={GONE}",
    "ENCRYPTION_KEY=Hunter2x": f"ENCRYPTION_KEY={GONE}",
    "pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDAwLTAwMDAtMDAwMC0wMDAw": GONE,
    "{'passwd': u'hunter2x'}": f"{{'passwd': u'{GONE}'}}",
    "b'password': b'hunter2x'": f"b'password': b'{GONE}'",
    "password=SecretStr('hunter2x')": f"password=SecretStr('{GONE}')",
    "'password' => 'hunter2x'": f"'password' => '{GONE}'",
    "token: >-\n  hunter2x\nn: 1": f"token: >-\n{GONE}\nn: 1",
    "  - token: |\n      hunter2x\n      more\n  - n: 1": f"  - token: |\n{GONE}\n  - n: 1",
    "Authorization: Bearer\n  hunter2x": f"Authorization: Bearer\n  {GONE}",
    "Authorization: Token\n  hunter2": f"Authorization: Token\n  {GONE}",
    "Authorization: hunter2\n  step 1": f"Authorization: {GONE}\n  step 1",
    "map[Authorization:[Bearer hunter2]]": f"map[Authorization:[Bearer {GONE}",
    'Authorization: Digest username="bob", response="hunter2"': (
        f'Authorization: Digest {GONE}"bob", response="{GONE}"'
    ),
    "AWS4-HMAC-SHA256 Credential=x/y, SignedHeaders=host;date, Signature=0a1b": (
        f"AWS4-HMAC-SHA256 Credential={GONE}, SignedHeaders=host;date, Signature={GONE}"
    ),
    r"{\\\"password\\\":\\\"hunter2x\\\",\\\"n\\\":1}": rf"{{\\\"password\\\":\\\"{GONE}\\\",\\\"n\\\":1}}",
    '{"name":"DB_PASSWORD","value":"hunter2x"}': f'{{"name":"DB_PASSWORD","value":"{GONE}"}}',
    '{"value": "hunter2x", "name": "DB_PASSWORD"}': f'{{"value": "{GONE}", "name": "DB_PASSWORD"}}',
    r'"[{\"name\":\"DB_PASSWORD\",\"value\":\"hunter2x\"}]"': rf'"[{{\"name\":\"DB_PASSWORD\",\"value\":\"{GONE}\"}}]"',
    "- name: DB_PASSWORD\n  value: hunter2x\n- name: A": f"- name: DB_PASSWORD\n  value: {GONE}\n- name: A",
    "- value: 'hunter2x'\n  name: DB_PASSWORD\n": f"- value: {GONE}\n  name: DB_PASSWORD\n",
    "data: " + base64.b64encode(b"user: admin, pass: Hunter2, more of it here").decode(): f"data: {GONE}",
}
STAY = [
    "Image ID: sha256:3c8f1b2a4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8",
    "      DB_PASSWORD:  <set to the key 'password' in secret 'db'>  Optional: false",
    "Warning  BackOff  2m  kubelet  Back-off restarting failed container main in pod web-5d4f8c7b9-x2x4z",
    "/var/lib/kubelet/pods/0a1b2c3d/volumes/kubernetes.io~projected/kube-api-access",
    "http://10.0.0.1:8080/path@2",
    "https://example.org/team@home/ml.git, ssh://git@host/ml.git, postgres://app@db/x",
    "https://host?mail=a@b",
    "tokens per second: 1200",
    "login failed: the password is wrong",
    "signal=9, design=new, sig=15",
    "    TokenExpirationSeconds:  3607",
    "    SecretName:  db-login",
    "total_tokens: 1200, tokens=7",
    "tokenizer: gpt2 loaded, --tokenizer gpt2",
    "      --use-token\n    State:          Running\n      Started:  now",
    "      --password-file /etc/db/password",
    "docker run -u 1000:1000 x",
    'MountVolume.SetUp failed for volume "x" : secret "db" not found',
    '"auth": "disabled", "auth": "anonymous", "auth": "munge_v2"',
    "cookie: 5",
    '{"name":"MODE","value":"fast"},{"name":"DB_PASSWORD"}',
    '{"value":"fast","name":"MODE"},{"name":"DB_PASSWORD"}',
    "- name: MODE\n  value: fast\n- name: DB_PASSWORD\n  valueFrom: x",
    "NFS: cookie=17 verifier",
    "encryption_key: none",
    "encryption_key: none of the host",
    "signing_key=ephemeral",
    "ENCRYPTION_KEY_PROVIDER=aws, token_type=Bearer, pad_token_id=50256",
    "account_key: A",
    "GET /x?sig=11",
    "login root password prompt",
    "Mounts: /var/run/secrets/kubernetes.io/serviceaccount from kube-api-access (ro)",
]


@pytest.mark.parametrize(("text", "left"), GO.items())
def test_a_secret_is_removed(text: str, left: str) -> None:
    found, count = removed(text)
    assert found == left
    assert count >= 1


@pytest.mark.parametrize("text", STAY)
def test_ordinary_text_stays(text: str) -> None:
    assert removed(text) == (text, 0)


LINE = "MIIE" + 15 * "aB3+"


@pytest.mark.parametrize("label", ["", "[rank0]: ", "2026-01-01T00:00:00.123Z ", "2026-01-01 00:00:00 INFO "])
@pytest.mark.parametrize("edges", [("BEGIN", "END"), ("BEGIN",), ("END",)])
def test_a_private_key_goes_also_if_it_is_cut(label: str, edges: tuple[str, ...]) -> None:
    begin, end = (f"-----{edge} RSA PRIVATE KEY-----" if edge in edges else "x y: z" for edge in ("BEGIN", "END"))
    lines = ["step 1 of it", begin, LINE, LINE, "MIIEab3=", end, "step 2 of it"]
    text, count = removed("\n".join(f"{label}{line}" for line in lines))
    assert "MIIE" not in text
    assert f"{label}step 1 of it\n" in text
    assert f"\n{label}step 2 of it" in text
    assert count == 1


@pytest.mark.parametrize("gap", ["\\n", " "])
@pytest.mark.parametrize("edges", [("BEGIN", "END"), ("BEGIN",), ("END",)])
def test_a_private_key_on_one_line_goes(gap: str, edges: tuple[str, ...]) -> None:
    begin, end = (f"-----{edge} PRIVATE KEY-----{gap}" if edge in edges else "" for edge in ("BEGIN", "END"))
    text, _ = removed(f"step 1 {begin}{LINE}{gap}{LINE}{gap}MIIEab3={gap}{end} more\nstep 2")
    assert LINE not in text
    assert text.startswith("step 1 ")
    assert text.endswith(" more\nstep 2")


def test_a_message_about_a_private_key_removes_nothing() -> None:
    text = "it must have -----BEGIN PRIVATE KEY----- at the top\nstep 2\nand -----END PRIVATE KEY----- below\nstep 3"
    assert removed(text.replace("-----END", "no END")) == (text.replace("-----END", "no END"), 0)
    assert removed(text.replace("-----BEGIN", "no BEGIN")) == (text.replace("-----BEGIN", "no BEGIN"), 0)


def test_a_long_name_of_a_mirror_is_no_credential() -> None:
    assert not has_credential("pypi-mirror-for-the-gpu-cluster-team-in-region-eu-central-1")


def test_known_values_are_removed_everywhere_and_in_base64() -> None:
    text = "login with tiger-42 failed; dump: dGlnZXItNDI="
    assert removed(text, ["tiger-42"]) == (f"login with {GONE} failed; dump: {GONE}", 2)


@pytest.mark.parametrize("text", ["p%40ss+w%22%C3%A9", "p%40ss%20w%22%C3%A9", 'p@ss w\\"é', r"p@ss w\"\u00e9"])
def test_known_values_are_removed_from_addresses_and_json(text: str) -> None:
    assert removed(f"x {text} y", ['p@ss w"é'])[0] == f"x {GONE} y"


def test_the_longer_of_two_known_values_is_removed_first() -> None:
    assert removed("x abcdef y", ["abcd", "abcdef"])[0] == f"x {GONE} y"


def test_settings_among_known_values_do_not_remove_ordinary_text() -> None:
    known = ["INFO", "true", "8080", "Error", "/data/models", "prod", "production", "0.25"]
    text = "NCCL INFO true :8080 RuntimeError Error /data/models/a product productions 0.25"
    assert removed(text, known) == (text, 0)
    assert removed("in prod, production", known) == (f"in {GONE}, {GONE}", 2)


def test_a_short_value_does_not_remove_ordinary_words() -> None:
    assert removed("one on top", ["on"])[0] == "one on top"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "piece",
    [
        "a",
        " ",
        "\t",
        "\n",
        "-",
        '"',
        "pass",
        "aws",
        "\\",
        "-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----",
        "a://",
        "https://",
        "a+",
        "a+https://",
        "token: ",
        "--password ",
        '"value":"',
    ],
)
def test_time_grows_with_the_length_of_the_text_not_with_its_square(piece: str) -> None:
    text, _ = removed(f"{piece * (200_000 // len(piece))}\nDB_PASSWORD: hunter2\n")
    assert "hunter2" not in text
