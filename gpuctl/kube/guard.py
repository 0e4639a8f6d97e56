"""Recognise destructive kubectl commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# kubectl options that take the next argument as their value, and kubectl's verbs.
_WITH_VALUE = """
-n --namespace --context --cluster --user --kubeconfig -s --server --token --as --as-group --as-uid --cache-dir
--certificate-authority --client-certificate --client-key --tls-server-name --request-timeout --username --password
--profile --profile-output --log-file --log-dir --log-flush-frequency -v --v --vmodule
-l --selector --field-selector -o --output --replicas
"""
_VERBS = """
annotate api-resources api-versions apply attach auth autoscale certificate cluster-info completion config cordon cp
create debug delete describe diff drain edit events exec explain expose get kustomize label logs options patch plugin
port-forward proxy replace rollout run scale set taint top uncordon version wait
"""
WITH_VALUE = frozenset(_WITH_VALUE.split())
VERBS = frozenset(_VERBS.split())
ALWAYS = frozenset({"delete", "drain", "cordon"})
ROLLOUT = frozenset({"undo", "restart"})
FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})  # as Go parses it


@dataclass(frozen=True)
class Command:
    """A parsed kubectl command line: positional arguments, and options by name (the last one wins)."""

    positional: Sequence[str] = ()
    options: dict[str, str] = field(default_factory=dict)

    @property
    def context(self) -> str:
        """Return the context given on the command line; empty for the current one."""
        return self.options.get("--context", "")

    @property
    def on(self) -> set[str]:
        """Return the options that are not switched off (as --prune=false is)."""
        return {name for name, value in self.options.items() if value not in FALSE}

    @property
    def elsewhere(self) -> bool:
        """True if the server is given directly and not by a context."""
        return any(name in self.options for name in ("-s", "--server", "--cluster"))

    @property
    def kubeconfig(self) -> str:
        return self.options.get("--kubeconfig", "")


def read(argv: Sequence[str]) -> Command:
    """Parse kubectl arguments; everything after `--` belongs to another program."""
    positional, options = [], {}
    tokens = iter(argv[: list(argv).index("--")] if "--" in argv else argv)
    for word in tokens:
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        name, has_value, value = word.partition("=")
        if name[:2] in ("-n", "-s", "-l") and len(name) > 2:  # -nkube-system
            name, has_value, value = word[:2], "=", word[2:].lstrip("=")
        if not has_value and name in WITH_VALUE:
            value = next(tokens, "")
        options[name] = value if has_value or value else "true"
    return Command(positional, options)


def destroys(command: Command) -> str:
    """Describe the irreversible action of a command; empty if there is none."""
    if not command.positional or command.on & {"-h", "--help"}:
        return ""
    if command.options.get("--dry-run", "none") not in FALSE | {"none"}:
        return ""
    # The first argument may be the value of an option before the verb, or a plugin's name.
    known = next((number for number, word in enumerate(command.positional) if word in VERBS), None)
    return _by_verb(command.positional[known:], command) if known is not None else ""


def _by_verb(positional: Sequence[str], command: Command) -> str:
    verb, on = positional[0], command.on
    if verb in ALWAYS:
        return verb
    if verb == "scale" and _is_zero(command.options.get("--replicas", "1")):
        return "scale to 0"
    if verb in ("apply", "replace") and on & {"--prune", "--force"}:
        return f"{verb} {' '.join(sorted(on & {'--prune', '--force'}))}"
    # Any position: an option and its value may precede it.
    rollout = next((word for word in positional[1:] if word in ROLLOUT), "")
    if verb == "rollout" and rollout:
        return f"rollout {rollout}"
    if verb == "taint" and any(word.endswith(":NoExecute") for word in command.positional):
        return "taint with NoExecute"
    return ""


def _is_zero(number: str) -> bool:
    """True if kubectl reads it as 0, which can also be written as 0x0."""
    try:
        return int(number, 0) == 0
    except ValueError:
        return False
