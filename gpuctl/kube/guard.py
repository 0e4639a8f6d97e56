"""Which kubectl commands destroy something, and whether to ask before one runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# Options of every kubectl command that take the next word as their value, and kubectl's own verbs.
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
FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})  # as Go reads it


@dataclass(frozen=True)
class Command:
    """What a kubectl command line says: its verbs and names in `words`, its options by name (the last one counts)."""

    positional: Sequence[str] = ()
    options: dict[str, str] = field(default_factory=dict)

    @property
    def context(self) -> str:
        """The context it names; empty where it takes the current one."""
        return self.options.get("--context", "")

    @property
    def on(self) -> set[str]:
        """The options that are not switched off, as --prune=false is."""
        return {name for name, value in self.options.items() if value not in FALSE}

    @property
    def elsewhere(self) -> bool:
        """Whether it goes to a server that no context names."""
        return any(name in self.options for name in ("-s", "--server", "--cluster"))

    @property
    def kubeconfig(self) -> str:
        return self.options.get("--kubeconfig", "")


def read(argv: Sequence[str]) -> Command:
    """Sort the words of a kubectl command; what follows `--` is for another program."""
    positional, options = [], {}
    rest = iter(argv[: list(argv).index("--")] if "--" in argv else argv)
    for word in rest:
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        name, has_value, value = word.partition("=")
        if name[:2] in ("-n", "-s", "-l") and len(name) > 2:  # -nkube-system
            name, has_value, value = word[:2], "=", word[2:].lstrip("=")
        if not has_value and name in WITH_VALUE:
            value = next(rest, "")
        options[name] = value if has_value or value else "true"
    return Command(positional, options)


def destroys(command: Command) -> str:
    """What a command does that cannot be taken back, in its own words; empty where it does no such thing."""
    if not command.positional or command.on & {"-h", "--help"}:
        return ""
    if command.options.get("--dry-run", "none") not in FALSE | {"none"}:
        return ""
    # The first word may be the value of an option that stands before the verb, or a plugin's name.
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
    # Not the second word alone: an option and its value may stand before it.
    rollout = next((word for word in positional[1:] if word in ROLLOUT), "")
    if verb == "rollout" and rollout:
        return f"rollout {rollout}"
    if verb == "taint" and any(word.endswith(":NoExecute") for word in command.positional):
        return "taint with NoExecute"
    return ""


def _is_zero(number: str) -> bool:
    """Whether kubectl takes it for 0, which may also be written as 0x0."""
    try:
        return int(number, 0) == 0
    except ValueError:
        return False
