"""Rules on names and ssh between nodes, each pair told by the node that looked."""

from __future__ import annotations

from gpuctl.domain.findings import Finding, fail, or_ok, warn
from gpuctl.nccl.preflight.checks import Facts, Fleet, get, some, unread, why

OWN_NAME = (
    "give each a name of its own: hostnamectl set-hostname NAME; "
    "nccl-tests takes them for one machine, and asks it for more GPUs than it has"
)


def names(fleet: Fleet) -> list[Finding]:
    """A node's name leads to its address, and its address back to its name, on the nodes that asked.

    What nodes call themselves tells each from the others.
    """
    findings, lookups = _shared(fleet), 0
    missing: dict[tuple[str, str], list[str]] = {}
    for node, facts in fleet.items():
        peers = get(facts, "names", "peers")
        if peers is None:
            findings.append(unread("names", node, "what it takes names to mean is", why(facts, "names", "peers")))
        for peer, answer in (peers or {}).items():
            lookups += 1
            peer_facts = fleet.get(peer, {})
            is_missing = _is_missing(answer, peer_facts)
            if is_missing:
                missing.setdefault((node, answer.get("error") or ""), []).append(peer)
            elif is_missing is None:
                findings.append(_untold(node, peer, answer))
            else:
                findings += _name(node, peer, answer, peer_facts)
    findings += [_unresolved(node, peers, reason) for (node, reason), peers in missing.items()]
    return or_ok(
        "names", "", findings, f"resolve both ways ({lookups} looked up)" if lookups else "a single node has no peers"
    )


def _shared(fleet: Fleet) -> list[Finding]:
    """Names that several nodes have: each test takes its GPUs by how many ranks before it have the same hostname."""
    known = {node: get(facts, "names", "hostname") for node, facts in fleet.items()}
    alike: dict[str, list[str]] = {}
    for node, hostname in known.items():
        if hostname:
            alike.setdefault(_short(hostname), []).append(node)
    findings = [
        fail("names", " and ".join(nodes) if len(nodes) == 2 else some(nodes), f"each is called {name}", OWN_NAME)
        for name, nodes in alike.items()
        if len(nodes) > 1
    ]
    silent = [node for node, hostname in known.items() if hostname is None and len(fleet) > 1]
    return findings + [
        unread("names", n, "what it calls itself is", why(fleet[n], "names", "hostname")) for n in silent
    ]


def _is_missing(answer: Facts, peer_facts: Facts) -> bool | None:
    """Not where the inventory alone calls it so, and the name it calls itself is known; None where nobody knows."""
    if answer["forward"] is None:
        return None
    known = True if answer["forward"] else _known_otherwise(answer, peer_facts, _addresses(peer_facts))
    return None if known is None else not known


def _untold(node: str, peer: str, answer: Facts) -> Finding:
    reason = answer.get("error") or "it was not told"
    return unread("names", node, f"whether it can resolve the name {peer} is", reason)


def _unresolved(node: str, peers: list[str], reason: str) -> Finding:
    """All names that a node does not know, in one finding."""
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
        message = f"takes {peer} for {', '.join(answer['forward'])}; {peer} itself has {', '.join(sorted(theirs))}"
        return [fail(rule, node, message, advice)]
    if answer["reverse"] is None:
        return [unread(rule, node, f"what name the address of {peer} has is", answer.get("error") or "it was not told")]
    if not answer["reverse"]:
        return [warn(rule, node, f"finds no name for the address of {peer}", advice)]
    hostname = get(peer_facts, "names", "hostname")
    if not {_short(name) for name in answer["reverse"]} & {_short(peer), _short(hostname or peer)}:
        message = f"takes the address of {peer} for {', '.join(answer['reverse'])}; {peer} calls itself {hostname}"
        return [warn(rule, node, message, advice)]
    return []


def _known_otherwise(answer: Facts, peer_facts: Facts, theirs: set[str]) -> bool | None:
    """Its address leads to the name it calls itself, and that name back to it; None where a part of it is unknown."""
    hostname, back, names_ = get(peer_facts, "names", "hostname"), answer.get("back"), answer["reverse"]
    named = None if names_ is None else _is_among(hostname, names_)
    leads = None if back is None or not theirs else bool(theirs.intersection(back))
    if named is False or leads is False:
        return False
    return True if named and leads else None


def _is_among(hostname: str | None, names_: list[str]) -> bool | None:
    """Whether it is one of these names; None where there are some, and it is not known."""
    if not names_:
        return False
    return None if hostname is None else _short(hostname) in {_short(name) for name in names_}


def _addresses(facts: Facts) -> set[str]:
    """Empty where not all are known."""
    per_interface = (get(facts, "names", "interfaces") or {}).values()
    if any(addresses is None for addresses in per_interface):
        return set()
    return {address.partition("/")[0] for addresses in per_interface for address in addresses}


def _short(name: str) -> str:
    return name.partition(".")[0].lower()


def ssh(fleet: Fleet) -> list[Finding]:
    """mpirun's way: the first node gets onto every other, and each node onto the next, as the job's user."""
    findings, tried = [], 0
    refused: dict[tuple[str, str], list[str]] = {}
    gone: dict[str, dict[str, str]] = {}
    for node, facts in fleet.items():
        peers = get(facts, "reach", "peers")
        if peers is None:
            findings.append(unread("ssh", node, "whether it gets onto other nodes is", why(facts, "reach", "peers")))
        for peer, answer in (peers or {}).items():
            tried += 1
            if answer["ok"] is None:
                findings.append(
                    unread("ssh", node, f"whether it gets onto {peer} is", answer["error"] or "it was not told")
                )
            elif answer["ok"]:
                findings += _arrived(node, peer, answer, fleet.get(peer, {}))
            elif peer in fleet:
                refused.setdefault((node, answer["error"] or ""), []).append(peer)
            else:  # it gave us no answer, either: the fault is its own
                gone.setdefault(peer, {})[node] = answer["error"] or ""
    findings += [_refused(fleet[node], node, peers, reason) for (node, reason), peers in refused.items()]
    findings += [_gone(peer, answer) for peer, answer in gone.items()]
    return or_ok("ssh", "", findings, f"works between nodes ({tried} tried)" if tried else "a single node has no peers")


def _refused(facts: Facts, node: str, peers: list[str], reason: str) -> Finding:
    user = get(facts, "reach", "user")
    message = f"user {user} does not get onto {some(peers)}: {reason}"
    return fail("ssh", node, message, _advice(reason, some(peers), peers[0]), peers=len(peers))


def _gone(peer: str, answers: dict[str, str]) -> Finding:
    message = f"it does not answer, and {some(list(answers))} cannot log in there: {next(iter(answers.values()))}"
    return fail("ssh", peer, message, "start it, or leave it out")


def _arrived(node: str, peer: str, answer: Facts, peer_facts: Facts) -> list[Finding]:
    hostname = get(peer_facts, "names", "hostname")
    if hostname and answer["hostname"] and _short(hostname) != _short(answer["hostname"]):
        message = f"who goes to {peer} arrives at {answer['hostname']}; {peer} calls itself {hostname}"
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
