"""Remove secrets from a text before others read it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from urllib.parse import quote, quote_plus

GONE = "<removed>"
# A count of tokens is not a secret, nor is a tokenizer.
COUNTED = r"(?!iz|s[\"']?[ \t]*[:=][ \t]*[\d.]+(?:[\s,;}\]]|$))"
KEYS = "(?:api|access|wandb|private)[_-]?key"
# Settings also have such names: a short value or a lower-case word is none of these keys.
NO_KEY = r"[\"']?[ \t]*[:=][ \t]*[\"']?(?:[^\s\"',;}]{0,5}|(?-i:[a-z]+))(?:[\s\"',;}]|$)"
KEYS_OR_SETTINGS = rf"(?:account|signing|encryption)[_-]?key(?!{NO_KEY})"
KINDS = rf"pass(?:word|wd|phrase)?|secret|token{COUNTED}|{KEYS}|{KEYS_OR_SETTINGS}|credential|(?:mysql|redis|db)_pwd"
NAMED = rf"(?=[\w.-]*(?:{KINDS}))[\w.-]++"
# Names about a secret that are no secrets: its name, its file, its lifetime. The secret_id of Vault is one.
ABOUT = "(?<!seconds)(?<!name)(?<!file)(?<!path)(?<!type)(?<!provider)(?:(?<!id)|(?<=secret_id)|(?<=secret-id))"
VALUED = rf"(?<![\w.-]){NAMED}{ABOUT}"  # matching starts only at the name's start
QUOTE = r"\\?[\"']"  # in JSON inside of JSON it is escaped
USER = r"(?:-[uU]|--(?:proxy-)?user)"
WORD = r"(?:[^\s\"'\\]|\\(?![\"']))+"  # up to a quote, escaped or not
KEY_NAME = "[A-Z ]*PRIVATE KEY(?: BLOCK)?"
SIGNED = "x-amz-(?:signature|credential|security-token)|x-goog-signature"  # parameters of an address
IS = rf"(?:{QUOTE})?[ \t]*[:=][ \t]*"
PAIR = r"[^\s=;,\"'\\<]+=(?:\\?\"[^\"\\\n]*\\?\"|[^\s;\"'\\]*)"  # of a cookie
# Groups: `keep` stays in front, `end` stays behind; the text between is removed.
# Credentials by their own shape, whatever the name in front of them.
SHAPES = (
    # -----BEGIN RSA PRIVATE KEY----- … -----END RSA PRIVATE KEY-----
    rf"(?P<keep>-----BEGIN {KEY_NAME}-----)[\s\S]*?(?P<end>-----END {KEY_NAME}-----|\Z)",
    # https://user:password@host, where the password may contain an @
    rf"(?P<keep>(?<![\w+.-])[\w+.-]+://[^\s:/@]*:)(?!{GONE}@)[^\s/?#\"'\\]+(?P<end>@)",
    # Authorization: abc, Authorization: Token abc, then Bearer abc and Basic abc anywhere
    rf"(?P<keep>(?i:\bauthorization{IS}(?:{QUOTE})?(?:[\w-]+[ \t]+)?))(?!<){WORD}",
    r"(?P<keep>(?i:\b(?:bearer|basic)\s+))[A-Za-z0-9._~+/=-]{8,}",
    # https://token@host, also git+https://
    rf"(?P<keep>(?i:(?<![\w+.-])(?:[\w.-]++\+)?+https?://))(?!{GONE}@)[^\s:/?#@\"'\\]++(?P<end>@)",
    # JSON web tokens, AWS, GitHub, Slack, GitLab, Hugging Face, OpenAI and Anthropic keys by their shape
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
    r"\b(?:AKIA|ASIA|AGPA|AROA|AIDA)[A-Z0-9]{16}\b",
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|xox[abposr]-[\w-]{10,}|glpat-[\w-]{16,})",
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|nvapi-[\w-]{20,})",
    # Google, npm, PyPI, Stripe, SendGrid, Databricks, Vault, age
    r"\b(?:AIza[\w-]{35}|GOCSPX-[\w-]{20,}|npm_[A-Za-z0-9]{30,}|pypi-AgE[\w-]{40,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,})",
    r"\b(?:SG\.[\w-]{16,}\.[\w-]{16,}|dapi[0-9a-f]{32}|hv[sbr]\.[\w-]{20,}|AGE-SECRET-KEY-1[A-Z0-9]{50,})",
    # Webhooks of Slack and Discord: whoever has the address may post
    r"(?P<keep>https://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/)(?!<)[\w/-]+",
)
PATTERNS = (
    *SHAPES,
    # curl -u user:password; two numbers are a user and a group
    rf"(?P<keep>(?<![\w-]){USER}(?:=|{QUOTE},\s*|\s*)(?:{QUOTE})?(?!\d+:\d+\b)[^\s:\"'/\\]+:)(?!<){WORD}",
    # "password": "abc", password='a b' up to the same quote; PASSWORD: abc as a whole line, else up to the word's end
    rf"(?P<keep>(?i:{VALUED}{IS})(?P<quote>{QUOTE}))(?!<)(?:(?!(?P=quote))(?:\\.|[^\n\\]))+(?P<end>(?P=quote))",
    rf"(?P<keep>(?im:^[ \t]*+(?:-[ \t]*+)?{VALUED}:[ \t]+))(?![<\"'])\S.*",
    rf"(?P<keep>(?i:{VALUED}{IS})(?:{QUOTE})?)(?!<)(?:[^\s\"'&,;\\]|\\(?![\"']))+",
    # --password abc, "--password", "abc", and an argument below it, as `kubectl describe` lists them
    rf"(?P<keep>(?i:(?=-){VALUED})(?:{QUOTE},[ \t]*{QUOTE}|[ \t]+(?:{QUOTE})?))(?![<-]){WORD}",
    rf"(?im:(?P<keep>^(?P<indent>[ \t]*(?:-[ \t]+)?)(?=-){VALUED}[ \t]*\n(?P=indent)))[^\s<-][^\n]*",
    # Signatures of presigned addresses: X-Amz-Signature=…, sig=…; .netrc
    rf"(?P<keep>(?i:[?&](?:{SIGNED})=))(?!<)[^\s&\"'\\]+",
    r"(?P<keep>(?i:[?&](?:signature|sig)=))(?!<)[^\s&\"'\\]{16,}",
    r"(?P<keep>(?i:\b(?:machine\s+\S+|default)\s+login\s+\S+\s+password\s+))(?!<)\S+",
    # Cookies, which are name=value: in quotes up to the same quote, else pair by pair
    rf"(?P<keep>(?i:\b(?:set-)?cookie{IS})(?P<quote>{QUOTE}))(?=[^\s=;,\"'<]+=)(?:(?!(?P=quote))[^\n])+(?P<end>(?P=quote))",
    rf"(?P<keep>(?i:\b(?:set-)?cookie{IS})){PAIR}(?:;[ \t]*(?:{PAIR}|[\w-]+))*+",
    # Pwd=… of connection strings; hashed passwords as in /etc/shadow
    r"(?P<keep>(?i:;[ \t]*pwd=))(?!<)[^;\s\"']+",
    r"(?<![\w$])\$(?:2[aby]|apr1|[156y])\$[\w./$=,-]{20,}",
    # 40 characters next to the word aws: a secret access key
    r"(?P<keep>(?i:aws)\S{0,100}\s{0,20}[:=]\s{0,20}[\"']?)[A-Za-z0-9/+=]{40}(?![A-Za-z0-9/+=])",
)
SHAPED = [re.compile(pattern) for pattern in SHAPES]
READ = [re.compile(pattern) for pattern in PATTERNS]
DOCKER_AUTH = re.compile(rf"({QUOTE}auth{QUOTE}[ \t]*:[ \t]*{QUOTE})([A-Za-z0-9+/_-]{{8,}}={{0,2}})(?={QUOTE})")
BLOB = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/]{40,}={0,2}(?![A-Za-z0-9+/_-])")
QUOTED: tuple[Callable[[str], str], ...] = (
    lambda value: quote(value, safe=""),
    quote_plus,
    lambda value: json.dumps(value)[1:-1],
    lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
)
KEY_END = re.compile(rf"-----END {KEY_NAME}-----")
KEY_LINE = re.compile(r"[A-Za-z0-9+/=]*")
SHORTEST = 4  # length of a known value; a shorter one would also match ordinary words


def removed(text: str, known: Iterable[str] | Known = ()) -> tuple[str, int]:
    """Return the text without secrets and their number. `known`: values of Secrets, removed everywhere."""
    text, count = (known if isinstance(known, Known) else Known(known)).removed(text)
    for pattern in READ:
        text, replaced = pattern.subn(_without, text)
        count += replaced
    text, replaced = _without_cut_key(text)
    count += replaced
    before = text.count(GONE)
    text = DOCKER_AUTH.sub(_without_docker_auth, text)
    text = BLOB.sub(_without_blob, text)
    return text, count + text.count(GONE) - before


def has_credential(text: str) -> bool:
    """True if a text holds a credential by its shape, rather than a name for one, a path or a reference ($(NAME))."""
    return any("$(" not in match[0] for pattern in SHAPED for match in pattern.finditer(text))


def _forms(known: Iterable[str]) -> list[str]:
    """Each value as a whole, by line, in base64, and as URLs and JSON have it; the longest first, as one may be part
    of another.
    """
    forms: set[str] = set()
    for value in known:
        parts = {value, value.strip(), *value.splitlines()}
        parts |= {base64.b64encode(part.encode()).decode() for part in (value, value.strip()) if part}
        parts |= {quoted(part) for part in (value, value.strip()) for quoted in QUOTED}
        forms |= {part for part in parts if len(part) >= SHORTEST}
    return sorted(forms, key=lambda form: (-len(form), form))


class Known:
    """Values of Secrets in all forms in which a text may have them; made once for many texts."""

    def __init__(self, values: Iterable[str]) -> None:
        self._forms = _forms(values)

    def removed(self, text: str) -> tuple[str, int]:
        """Return the text without the values, and how often they were in it."""
        count = 0
        for form in self._forms:
            if form in text:
                count += text.count(form)
                text = text.replace(form, GONE)
        return text, count


def _without_cut_key(text: str) -> tuple[str, int]:
    """Remove the end of a private key whose beginning is not in the text, as in the last lines of a log."""
    end = KEY_END.search(text)
    if end is None or text[: end.start()].endswith(GONE):
        return text, 0
    before = text[: end.start()].splitlines(keepends=True)
    kept = len(before)
    while kept and KEY_LINE.fullmatch(before[kept - 1].rstrip("\r\n")):
        kept -= 1
    return "".join(before[:kept]) + GONE + text[end.start() :], 1


def _without(match: re.Match[str]) -> str:
    parts = match.groupdict()
    return f"{parts.get('keep') or ''}{GONE}{parts.get('end') or ''}"


def _without_blob(match: re.Match[str]) -> str:
    """Remove a long run of base64; keep hashes, paths and long plain names."""
    text = match[0]
    if re.fullmatch(r"[0-9a-f]+|[0-9A-F]+|[0-9]+|[a-z/]+|[A-Z/]+", text) or text.count("/") > len(text) / 12:
        return text
    return GONE


def _without_docker_auth(match: re.Match[str]) -> str:
    """Remove user:password in base64; keep a word such as "disabled"."""
    return f"{match[1]}{GONE}" if user_password(match[2]) else match[0]


def user_password(text: str) -> str | None:
    """Return the password of user:password in base64; None if the text is anything else."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except ValueError:
        return None
    user, colon, password = plain.partition(":")
    return password if plain.isprintable() and user and colon and password else None
