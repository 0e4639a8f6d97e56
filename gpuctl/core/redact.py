"""Remove secrets from a text before others read it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from functools import cache
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
QUOTE = r"\\{0,7}[\"']"  # in JSON inside of JSON it is escaped, up to three times
USER = r"(?:-[uU]|--(?:proxy-)?user)"
WORD = r"(?:[^\s\"'\\]|\\(?!\\{0,6}[\"']))+"  # up to a quote, escaped or not
KEY_NAME = "[A-Z ]*PRIVATE KEY(?: BLOCK)?"
SIGNED = "x-amz-(?:signature|credential|security-token)|x-goog-signature"  # parameters of an address
IS = rf"(?:{QUOTE})?[ \t]*(?:=>|:=|:(?!=)|=(?!>))[ \t]*"
PREFIX = r"(?:[\w.]{1,40}\()?[ubrf]{0,2}"  # before the quote of a value: SecretStr('…'), u'…'
SCHEME = "(?:bearer|basic|token|negotiate)"
SCHEMED = rf"(?:[\w-]+[ \t]+|{SCHEME}[ \t]*\n[ \t]+)?"
BLOCK = "[|>][+-]?[0-9]?[ \\t]*"  # before a value of YAML in the next lines
QUOTED_TEXT = r"(?:(?!(?P=quote))(?:\\.|[^\n\\]))+"  # up to the quote with which it began
PAIR = r"[^\s=;,\"'\\<]+=(?:\\?\"[^\"\\\n]*\\?\"|[^\s;\"'\\]*)"  # of a cookie
# Groups: `keep` stays in front, `end` stays behind; the text between is removed.
# Credentials by their own shape, whatever the name in front of them.
SHAPES = (
    # https://user:password@host, where the password may contain an @
    rf"(?P<keep>(?<![\w+.-])[\w+.-]+://[^\s:/@]*:)(?!{GONE}@)[^\s/?#\"'\\]+(?P<end>@)",
    # Authorization: abc, Authorization: Token abc, then Bearer abc and Basic abc anywhere
    r"(?P<keep>(?i:\bdigest\b[^\n]{0,300}?\bresponse=\\{0,7}[\"']?))(?!<)[^\s,\"'\\]+",
    r"(?P<keep>\bSignedHeaders=[^\s,]*,?\s*Signature=)(?!<)\w+",
    r"(?P<keep>(?i:\b(?:bearer|basic)\s+))[A-Za-z0-9._~+/=-]{8,}",
    rf"(?P<keep>(?i:\bauthorization{IS}(?:\[|{QUOTE}){{0,2}}(?!(?:bearer|basic)\s+<){SCHEMED}))(?!<){WORD}",
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
    rf"(?P<keep>(?i:{VALUED}{IS}{PREFIX})(?P<quote>{QUOTE}))(?!<){QUOTED_TEXT}(?P<end>(?P=quote))",
    # and in YAML as a block of lines below
    (
        rf"(?im:(?P<keep>^(?P<indent>[ \t]*+)(?:-[ \t]+)?{VALUED}:[ \t]+{BLOCK}\n)"
        r"(?P=indent)[ \t]+[^\s<][^\n]*(?:\n(?P=indent)[ \t]+\S[^\n]*)*)"
    ),
    rf"(?im:(?P<keep>^[ \t]*+(?:-[ \t]*+)?{VALUED}:[ \t]+)(?![<\"']|{PREFIX}{QUOTE}|{BLOCK}$)\S.*)",
    (
        rf"(?im:(?P<keep>{VALUED}{IS}(?:{QUOTE})?)(?!<|{PREFIX}{QUOTE}{GONE}|{BLOCK}$)"
        r"(?:[^\s\"'&,;\\]|\\(?!\\{0,6}[\"']))+)"
    ),
    # {"name": "DB_PASSWORD", "value": "abc"} in either order, and as lines of YAML
    (
        rf"(?P<keep>(?i:{QUOTE}name{QUOTE}[ \t]*:[ \t]*{QUOTE}{VALUED}{QUOTE},\s*{QUOTE}value{QUOTE}[ \t]*:[ \t]*)"
        rf"(?P<quote>{QUOTE}))(?!<){QUOTED_TEXT}(?P<end>(?P=quote))"
    ),
    (
        rf"(?P<keep>{QUOTE}value{QUOTE}[ \t]*:[ \t]*(?P<quote>{QUOTE}))(?!<){QUOTED_TEXT}"
        rf"(?P<end>(?P=quote),\s*(?i:{QUOTE}name{QUOTE}[ \t]*:[ \t]*{QUOTE}{VALUED}{QUOTE}))"
    ),
    (
        rf"(?im:(?P<keep>^[ \t]*+-[ \t]+name:[ \t]+[\"']?{VALUED}[\"']?[ \t]*\n[ \t]*value:[ \t]+))"
        rf"(?![<]|{BLOCK}$)\S[^\n]*"
    ),
    (
        r"(?im:(?P<keep>^[ \t]*+-[ \t]+value:[ \t]+)(?!<)\S[^\n]*"
        rf"(?P<end>\n[ \t]*name:[ \t]+[\"']?{VALUED}[\"']?[ \t]*$))"
    ),
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
KEY_EDGE = re.compile(rf"-----(BEGIN|END) {KEY_NAME}-----")
DOCKER_AUTH = re.compile(rf"({QUOTE}auth{QUOTE}[ \t]*:[ \t]*{QUOTE})([A-Za-z0-9+/_-]{{8,}}={{0,2}})(?={QUOTE})")
BLOB = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/]{40,}={0,2}(?![A-Za-z0-9+/_-])")
QUOTED: tuple[Callable[[str], str], ...] = (
    lambda value: quote(value, safe=""),
    quote_plus,
    lambda value: json.dumps(value)[1:-1],
    lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
)
KEY_LINE = re.compile(r"[A-Za-z0-9+/=]*")
KEY_HEADER = re.compile(r"(?:Proc-Type|DEK-Info|Version|Comment|Hash): ")
KEY_GAP = re.compile(r"((?:\\+[nr]|[ \t])+)")  # between the lines of a key that stands on one line
LONGEST_KEY = 20_000  # characters, with labels before its lines
SHORTEST_KEY_LINE = 32  # of one that is not the last
# Values of settings that Secrets also hold: switches, log levels, ports and paths. They are in any log.
ORDINARY = re.compile(
    r"true|false|yes|no|on|off|none|null|trace|debug|info|notice|warn|warning|error|critical|fatal"
    r"|[0-9]{1,5}|[0-9]+\.[0-9]+|(?:/[a-z0-9._-]{1,30})+/?",
    re.IGNORECASE,
)
LONG = 8  # length from which a known value is removed also inside of a word, if it is not a word itself
SHORTEST = 4  # length of a known value; a shorter one would also match ordinary words


def removed(text: str, known: Iterable[str] | Known = ()) -> tuple[str, int]:
    """Return the text without secrets and their number. `known`: values of Secrets, removed everywhere."""
    text, count = (known if isinstance(known, Known) else Known(known)).removed(text)
    text, replaced = _without_keys(text)
    count += replaced
    for pattern in _compiled(PATTERNS):
        text, replaced = pattern.subn(_without, text)
        count += replaced
    before = text.count(GONE)
    text = DOCKER_AUTH.sub(_without_docker_auth, text)
    text = BLOB.sub(_without_blob, text)
    return text, count + text.count(GONE) - before


def has_credential(text: str) -> bool:
    """True if a text holds a credential by its shape, rather than a name for one, a path or a reference ($(NAME))."""
    return any("$(" not in match[0] for pattern in (KEY_EDGE, *_compiled(SHAPES)) for match in pattern.finditer(text))


@cache
def _compiled(patterns: tuple[str, ...]) -> list[re.Pattern[str]]:
    """Compile when a text is read: it takes longer than the start of many commands that import this module."""
    return [re.compile(pattern) for pattern in patterns]


def _forms(known: Iterable[str]) -> list[str]:
    """Each value as a whole, by line, in base64, and as URLs and JSON have it; the longest first, as one may be part
    of another.
    """
    forms: set[str] = set()
    for value in known:
        parts = {value, value.strip(), *value.splitlines()}
        parts |= {base64.b64encode(part.encode()).decode() for part in (value, value.strip()) if part}
        parts |= {quoted(part) for part in (value, value.strip()) for quoted in QUOTED}
        forms |= {part for part in parts if len(part) >= SHORTEST and not ORDINARY.fullmatch(part)}
    return sorted(forms, key=lambda form: (-len(form), form))


class Known:
    """Values of Secrets in all forms in which a text may have them; made once for many texts."""

    def __init__(self, values: Iterable[str]) -> None:
        self._forms = _forms(values)

    def removed(self, text: str) -> tuple[str, int]:
        """Return the text without the values, and how often they were in it."""
        count = 0
        for form in self._forms:
            if form not in text:
                continue
            if len(form) < LONG or form.isalpha():
                text, replaced = re.subn(rf"(?<!\w){re.escape(form)}(?!\w)", GONE, text)
            else:
                text, replaced = text.replace(form, GONE), text.count(form)
            count += replaced
        return text, count


def _without_keys(text: str) -> tuple[str, int]:
    """Remove private keys, also those of which the text lacks the beginning, as the last lines of a log may, or end."""
    edges = list(KEY_EDGE.finditer(text))
    if not edges:
        return text, 0
    parts = [text[: edges[0].start()]]
    count = 0
    for edge, after in zip(edges, [*edges[1:], None], strict=True):
        between = text[edge.end() : after.start() if after else len(text)]
        if edge[1] == "END" and not parts[-1].endswith(GONE):
            parts[-1] = _before_end(parts[-1])
            count += parts[-1].endswith(GONE)
        parts.append(edge[0])
        if edge[1] == "BEGIN" and after and after[1] == "END" and len(between) <= LONGEST_KEY:
            count += between != GONE
            parts.append(GONE)
        else:
            rest = _after_begin(between) if edge[1] == "BEGIN" else between
            count += rest != between
            parts.append(rest)
    return "".join(parts), count


def _before_end(text: str) -> str:
    """Remove the lines of a key at the end of a text; labels before them, such as a time, are as on the last line."""
    lines = text.splitlines(keepends=True)
    label = lines.pop() if lines and not lines[-1].endswith(("\n", "\r")) else ""
    if (kept := _without_key_words(label)) != label:  # the key stands on one line
        return f"{kept}{GONE}"
    last = len(lines)
    while last and _is_key_line(lines[last - 1], label.split()):
        last -= 1
    return "".join([*lines[:last], label]) + (GONE if last < len(lines) else "")


def _without_key_words(label: str) -> str:
    words = KEY_GAP.split(label)
    # The last line of a key may be short, if a long one is before it.
    short = len(words) >= 5 and KEY_LINE.fullmatch(words[-3]) and len(words[-3]) < SHORTEST_KEY_LINE
    end = len(words) - 2 if short and not words[-1] else len(words)
    last = end
    while last and (last % 2 == 0 or not words[last - 1] or _is_long(words[last - 1])):
        last -= 1
    return "".join(words[:last]) if any(_is_long(word) for word in words[last:end]) else label


def _after_begin(text: str) -> str:
    """Remove the lines of a key at the beginning of a text; other lines stay, as a message may only mention a key."""
    rest, newline, below = text.partition("\n")
    words = KEY_GAP.split(rest)
    first = 0
    while first < len(words) and (first % 2 or not words[first] or _is_long(words[first])):
        first += 1
    lines = below.splitlines(keepends=True)
    kept = 0
    while kept < len(lines) and _continues_key(lines, kept):
        kept += 1
    if not any(map(_is_long, [*words[:first], *(line.split()[-1] for line in lines[:kept] if line.split())])):
        return text
    return "".join([GONE, *words[first:], newline, *lines[kept:]])


def _continues_key(lines: list[str], number: int) -> bool:
    words = lines[number].split()
    if not words or KEY_HEADER.match(lines[number]) or _is_long(words[-1]):
        return True
    before = lines[number - 1].split() if number else []
    return bool(before) and _is_long(before[-1]) and _is_key_line(lines[number], before[:-1])


def _is_key_line(line: str, labels: list[str]) -> bool:
    words = line.split()
    alike = [re.sub(r"[0-9]+", "0", label) for label in words[:-1]] == [re.sub(r"[0-9]+", "0", one) for one in labels]
    return not words or (alike and bool(KEY_LINE.fullmatch(words[-1])))


def _is_long(word: str) -> bool:
    return len(word) >= SHORTEST_KEY_LINE and bool(KEY_LINE.fullmatch(word))


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
