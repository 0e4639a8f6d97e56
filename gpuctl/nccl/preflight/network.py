"""Rules `names` and `ssh`: name resolution and logins between nodes, as observed on each node."""

from __future__ import annotations

from gpuctl.domain.findings import Finding, fail, or_ok, warn
from gpuctl.domain.node_facts import Facts, Fleet, get, some, unread, why

RENAME = (
    "give each a name of its own: hostnamectl set-hostname NAME; "
    "nccl-tests takes them for one machine, and asks it for more GPUs than it has"
)


def names(fleet: Fleet) -> list[Finding]:
    """Check that names resolve to addresses and addresses back to names, and that host names are unique."""
    findings, lookups = _shared(fleet), 0
    missing: dict[tuple[str, str], list[str]] = {}
    for node, facts in fleet.items():
        peers = get(facts, "names", "peers")
        if peers is None:
            findings.append(
                unread("names", node, "the addresses it resolves names to are", why(facts, "names", "peers"))
            )
        for peer, answer in (peers or {}).items():
            lookups += 1
            peer_facts = fleet.get(peer, {})
            is_missing = _is_missing(answer, peer_facts)
            if is_missing:
                missing.setdefault((node, answer.get("error") or ""), []).append(peer)
            elif is_missing is None:
                findings.append(_not_resolved(node, peer, answer))
            else:
                findings += _name(node, peer, answer, peer_facts)
    findings += [_unresolved(node, peers, reason) for (node, reason), peers in missing.items()]
    return or_ok(
        "names", "", findings, f"resolve both ways ({lookups} looked up)" if lookups else "a single node has no peers"
    )


def _shared(fleet: Fleet) -> list[Finding]:
    """Find host names that nodes share: a rank picks its GPU by counting earlier ranks with its host name."""
    known = {node: get(facts, "names", "hostname") for node, facts in fleet.items()}
    alike: dict[str, list[str]] = {}
    for node, hostname in known.items():
        if hostname:
            alike.setdefault(_short(hostname), []).append(node)
    findings = [
        fail(
            "names",
            " and ".join(nodes) if len(nodes) == 2 else some(nodes),
            f"each has the host name {name}",
            RENAME,
        )
        for name, nodes in alike.items()
        if len(nodes) > 1
    ]
    silent = [node for node, hostname in known.items() if hostname is None and len(fleet) > 1]
    return findings + [unread("names", n, "its host name is", why(fleet[n], "names", "hostname")) for n in silent]


def _is_missing(answer: Facts, peer_facts: Facts) -> bool | None:
    """True if the peer's name does not resolve; False if it resolves by the host's own name; None if unknown."""
    if answer["forward"] is None:
        return None
    known = True if answer["forward"] else _known_otherwise(answer, peer_facts, _addresses(peer_facts))
    return None if known is None else not known


def _not_resolved(node: str, peer: str, answer: Facts) -> Finding:
    reason = answer.get("error") or "no reason was given"
    return unread("names", node, f"whether it can resolve the name {peer} is", reason)


def _unresolved(node: str, peers: list[str], reason: str) -> Finding:
    """Combine all names that a node cannot resolve into one finding."""
    known = some(peers)
    advice = f"put {'it' if len(peers) == 1 else 'them'} into DNS, or into /etc/hosts of {node}"
    names_ = f"the name {known}" if len(peers) == 1 else f"the names {known}"
    return fail(
        "names", node, f"cannot resolve {names_}" + (f" ({reason})" if reason else ""), advice, names=len(peers)
    )


def _name(node: str, peer: str, answer: Facts, peer_facts: Facts) -> list[Finding]:
    rule, advice = "names", f"put {peer} into DNS, or into /etc/hosts of {node}"
    theirs = _addresses(peer_facts)
    if not answer["forward"]:
        return []
    if theirs and not theirs.intersection(answer["forward"]):
        message = f"resolves {peer} to {', '.join(answer['forward'])}, but {peer} has {', '.join(sorted(theirs))}"
        return [fail(rule, node, message, advice)]
    if answer["reverse"] is None:
        return [unread(rule, node, f"the name of {peer}'s address is", answer.get("error") or "no reason was given")]
    if not answer["reverse"]:
        return [warn(rule, node, f"finds no name for the address of {peer}", advice)]
    hostname = get(peer_facts, "names", "hostname")
    if not {_short(name) for name in answer["reverse"]} & {_short(peer), _short(hostname or peer)}:
        message = f"resolves the address of {peer} to {', '.join(answer['reverse'])}, but its host name is {hostname}"
        return [warn(rule, node, message, advice)]
    return []


def _known_otherwise(answer: Facts, peer_facts: Facts, theirs: set[str]) -> bool | None:
    """True if the peer's address resolves to its host name and back; None if a part is unknown."""
    hostname, back, names_ = get(peer_facts, "names", "hostname"), answer.get("back"), answer["reverse"]
    named = None if names_ is None else _is_among(hostname, names_)
    leads = None if back is None or not theirs else bool(theirs.intersection(back))
    if named is False or leads is False:
        return False
    return True if named and leads else None


def _is_among(hostname: str | None, names_: list[str]) -> bool | None:
    """True if the host name is one of these names; None if the host name is unknown."""
    if not names_:
        return False
    return None if hostname is None else _short(hostname) in {_short(name) for name in names_}


def _addresses(facts: Facts) -> set[str]:
    """All addresses of a node; empty if some are unknown."""
    per_interface = (get(facts, "names", "interfaces") or {}).values()
    if any(addresses is None for addresses in per_interface):
        return set()
    return {address.partition("/")[0] for addresses in per_interface for address in addresses}


def _short(name: str) -> str:
    return name.partition(".")[0].lower()


def ssh(fleet: Fleet) -> list[Finding]:
    """Check the logins that mpirun needs, as the job's user: from the first node to all, from each to the next."""
    findings, tried = [], 0
    refused: dict[tuple[str, str], list[str]] = {}
    gone: dict[str, dict[str, str]] = {}
    for node, facts in fleet.items():
        peers = get(facts, "reach", "peers")
        if peers is None:
            findings.append(
                unread("ssh", node, "whether it can log in to other nodes is", why(facts, "reach", "peers"))
            )
        for peer, answer in (peers or {}).items():
            tried += 1
            if answer["ok"] is None:
                findings.append(
                    unread("ssh", node, f"whether it can log in to {peer} is", answer["error"] or "no reason was given")
                )
            elif answer["ok"]:
                findings += _arrived(node, peer, answer, fleet.get(peer, {}))
            elif peer in fleet:
                refused.setdefault((node, answer["error"] or ""), []).append(peer)
            else:  # it did not answer gpuctl either, so the fault is its own
                gone.setdefault(peer, {})[node] = answer["error"] or ""
    findings += [_refused(fleet[node], node, peers, reason) for (node, reason), peers in refused.items()]
    findings += [_gone(peer, answer) for peer, answer in gone.items()]
    return or_ok("ssh", "", findings, f"works between nodes ({tried} tried)" if tried else "a single node has no peers")


def _refused(facts: Facts, node: str, peers: list[str], reason: str) -> Finding:
    user = get(facts, "reach", "user")
    message = f"user {user} cannot log in to {some(peers)}: {reason}"
    return fail("ssh", node, message, _advice(reason, some(peers), peers[0]), peers=len(peers))


def _gone(peer: str, answers: dict[str, str]) -> Finding:
    message = f"it does not answer, and {some(list(answers))} cannot log in there: {next(iter(answers.values()))}"
    return fail("ssh", peer, message, "start it, or leave it out")


def _arrived(node: str, peer: str, answer: Facts, peer_facts: Facts) -> list[Finding]:
    hostname = get(peer_facts, "names", "hostname")
    if hostname and answer["hostname"] and _short(hostname) != _short(answer["hostname"]):
        message = f"a login to {peer} arrives at {answer['hostname']}, but the host name of {peer} is {hostname}"
        return [
            fail("ssh", node, message, "two nodes with one address, or a wrong entry in DNS or ssh's configuration")
        ]
    return []


def _advice(reason: str, peers: str, first: str) -> str:
    if "ost key" in reason:
        return f"add the host keys of {peers} to known_hosts of the job's user, or to /etc/ssh/ssh_known_hosts"
    if "ermission denied" in reason:
        return "give the job's user a key without a passphrase, and put it into authorized_keys on all nodes"
    return f"log in by hand from there: ssh {first}"
