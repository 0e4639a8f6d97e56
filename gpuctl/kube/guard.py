"""Recognise destructive commands of kubectl, oc and helm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

# Options that take the next argument as their value, and verbs.
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
_OC_VERBS = """
cancel-build extract idle image import-image login logout new-app new-build new-project observe policy process project
projects prune rollback rsh rsync secrets serviceaccounts start-build status tag whoami
"""
_HELM_WITH_VALUE = """
-n --namespace --kube-context --kubeconfig --kube-apiserver --kube-token --kube-ca-file --kube-as-user --kube-as-group
--kube-tls-server-name --registry-config --repository-cache --repository-config --timeout --version -f --values --set
--set-string --set-file --set-json --description --history-max --cascade --burst-limit --qps
"""
_HELM_VERBS = """
completion create dependency dep dependencies env get help history hist inspect show install lint list ls package plugin
pull fetch push registry repo rollback search status template test uninstall un del delete upgrade verify version
"""
ALWAYS = frozenset({"delete", "drain", "cordon", "idle", "rollback"})
ROLLOUT = frozenset({"undo", "restart"})
HELM_UNINSTALL = frozenset({"uninstall", "un", "del", "delete"})
FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})  # as Go parses it


@dataclass(frozen=True)
class Command:
    """A parsed kubectl command line: positional arguments, and options by name (the last one wins)."""

    positional: Sequence[str] = ()
    options: dict[str, str] = field(default_factory=dict)

    @property
    def context(self) -> str:
        """Return the context given on the command line; empty for the current one."""
        return self.options.get("--context") or self.options.get("--kube-context", "")

    @property
    def on(self) -> set[str]:
        """Return the options that are not switched off (as --prune=false is)."""
        return {name for name, value in self.options.items() if value not in FALSE}

    @property
    def elsewhere(self) -> bool:
        """True if the server is given directly and not by a context."""
        return any(name in self.options for name in ("-s", "--server", "--cluster", "--kube-apiserver"))

    @property
    def kubeconfig(self) -> str:
        return self.options.get("--kubeconfig", "")


def read(program: str, argv: Sequence[str], defaults: Mapping[str, str] | None = None) -> Command:
    """Parse a command line; everything after `--` belongs to another program. `defaults`: options that it may omit."""
    positional, options = [], dict(defaults or {})
    with_value = PROGRAMS[program].with_value
    tokens = iter(argv[: list(argv).index("--")] if "--" in argv else argv)
    for word in tokens:
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        name, has_value, value = word.partition("=")
        if name[:2] in ("-n", "-s", "-l") and len(name) > 2:  # -nkube-system
            name, has_value, value = word[:2], "=", word[2:].lstrip("=")
        if not has_value and name in with_value:
            value = next(tokens, "")
        options[name] = value if has_value or value else "true"
    return Command(positional, options)


def destroys(program: str, command: Command) -> str:
    """Describe the irreversible action of a command; empty if there is none."""
    if not command.positional or command.on & {"-h", "--help"}:
        return ""
    if command.options.get("--dry-run", "none") not in FALSE | {"none"}:
        return ""
    # The first argument may be the value of an option before the verb, or a plugin's name.
    known = next((number for number, word in enumerate(command.positional) if word in PROGRAMS[program].verbs), None)
    return PROGRAMS[program].judge(command.positional[known:], command) if known is not None else ""


def _helm(positional: Sequence[str], command: Command) -> str:
    verb, forced = positional[0], command.on & {"--force", "--force-replace"}
    if verb in HELM_UNINSTALL:
        return "uninstall"
    if verb == "rollback":
        return verb
    return f"upgrade {' '.join(sorted(forced))}" if verb == "upgrade" and forced else ""


def _kubectl(positional: Sequence[str], command: Command) -> str:
    verb, on = positional[0], command.on
    if verb in ALWAYS or (verb == "prune" and "--confirm" in on):  # without it, oc adm prune is a dry run
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


@dataclass(frozen=True)
class Program:
    """The options of a program that take the next argument, its verbs, and the judgement of a command from its verb."""

    with_value: frozenset[str]
    verbs: frozenset[str]
    judge: Callable[[Sequence[str], Command], str]


PROGRAMS: Mapping[str, Program] = {
    "kubectl": Program(frozenset(_WITH_VALUE.split()), frozenset(_VERBS.split()), _kubectl),
    "oc": Program(frozenset(_WITH_VALUE.split()), frozenset((_VERBS + _OC_VERBS).split()), _kubectl),
    "helm": Program(frozenset(_HELM_WITH_VALUE.split()), frozenset(_HELM_VERBS.split()), _helm),
}
