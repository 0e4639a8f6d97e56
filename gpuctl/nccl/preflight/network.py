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
    found, asked = _shared(fleet), 0
    missing: dict[tuple[str, str], list[str]] = {}
    for node, facts in fleet.items():
        peers = get(facts, "names", "peers")
        if peers is None:
            found.append(unread("names", node, "what it takes names to mean is", why(facts, "names", "peers")))
        for peer, told in (peers or {}).items():
            asked += 1
            own = fleet.get(peer, {})
            is_missing = _is_missing(told, own)
            if is_missing:
                missing.setdefault((node, told.get("said") or ""), []).append(peer)
            elif is_missing is None:
                found.append(_untold(node, peer, told))
            else:
                found += _name(node, peer, told, own)
    found += [_unresolved(node, peers, said) for (node, said), peers in missing.items()]
    return or_ok(
        "names", "", found, f"resolve both ways ({asked} looked up)" if asked else "a single node has no peers"
    )


def _shared(fleet: Fleet) -> list[Finding]:
    """Names that several nodes have: each test takes its GPUs by how many ranks before it have the same hostname."""
    known = {node: get(facts, "names", "hostname") for node, facts in fleet.items()}
    alike: dict[str, list[str]] = {}
    for node, own in known.items():
        if own:
            alike.setdefault(_short(own), []).append(node)
    found = [
        fail("names", " and ".join(nodes) if len(nodes) == 2 else some(nodes), f"each is called {name}", OWN_NAME)
        for name, nodes in alike.items()
        if len(nodes) > 1
    ]
    silent = [node for node, own in known.items() if own is None and len(fleet) > 1]
    return found + [unread("names", n, "what it calls itself is", why(fleet[n], "names", "hostname")) for n in silent]


def _is_missing(told: Facts, own: Facts) -> bool | None:
    """Not where the inventory alone calls it so, and the name it calls itself is known; None where nobody knows."""
    if told["forward"] is None:
        return None
    known = True if told["forward"] else _known_otherwise(told, own, _addresses(own))
    return None if known is None else not known


def _untold(node: str, peer: str, told: Facts) -> Finding:
    reason = told.get("said") or "it was not told"
    return unread("names", node, f"whether it can resolve the name {peer} is", reason)


def _unresolved(node: str, peers: list[str], said: str) -> Finding:
    """All names that a node does not know, in one finding."""
    known = some(peers)
    advice = f"put {'it' if len(peers) == 1 else 'them'} into DNS, or into /etc/hosts of {node}"
    names_ = f"the name {known}" if len(peers) == 1 else f"the names {known}"
    return fail("names", node, f"cannot resolve {names_}" + (f" ({said})" if said else ""), advice, names=len(peers))


def _name(node: str, peer: str, told: Facts, own: Facts) -> list[Finding]:
    rule, advice = "names", f"put {peer} into DNS, or into /etc/hosts of {node}"
    theirs = _addresses(own)
    if not told["forward"]:
        return []
    if theirs and not theirs.intersection(told["forward"]):
        says = f"takes {peer} for {', '.join(told['forward'])}; {peer} itself has {', '.join(sorted(theirs))}"
        return [fail(rule, node, says, advice)]
    if told["reverse"] is None:
        return [unread(rule, node, f"what name the address of {peer} has is", told.get("said") or "it was not told")]
    if not told["reverse"]:
        return [warn(rule, node, f"finds no name for the address of {peer}", advice)]
    hostname = get(own, "names", "hostname")
    if not {_short(name) for name in told["reverse"]} & {_short(peer), _short(hostname or peer)}:
        says = f"takes the address of {peer} for {', '.join(told['reverse'])}; {peer} calls itself {hostname}"
        return [warn(rule, node, says, advice)]
    return []


def _known_otherwise(told: Facts, own: Facts, theirs: set[str]) -> bool | None:
    """Its address leads to the name it calls itself, and that name back to it; None where a part of it is unknown."""
    hostname, back, names_ = get(own, "names", "hostname"), told.get("back"), told["reverse"]
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
    own = (get(facts, "names", "interfaces") or {}).values()
    if any(addresses is None for addresses in own):
        return set()
    return {address.partition("/")[0] for addresses in own for address in addresses}


def _short(name: str) -> str:
    return name.partition(".")[0].lower()


def ssh(fleet: Fleet) -> list[Finding]:
    """mpirun's way: the first node gets onto every other, and each node onto the next, as the job's user."""
    found, tried = [], 0
    refused: dict[tuple[str, str], list[str]] = {}
    gone: dict[str, dict[str, str]] = {}
    for node, facts in fleet.items():
        peers = get(facts, "reach", "peers")
        if peers is None:
            found.append(unread("ssh", node, "whether it gets onto other nodes is", why(facts, "reach", "peers")))
        for peer, told in (peers or {}).items():
            tried += 1
            if told["ok"] is None:
                found.append(unread("ssh", node, f"whether it gets onto {peer} is", told["said"] or "it was not told"))
            elif told["ok"]:
                found += _arrived(node, peer, told, fleet.get(peer, {}))
            elif peer in fleet:
                refused.setdefault((node, told["said"] or ""), []).append(peer)
            else:  # it gave us no answer, either: the fault is its own
                gone.setdefault(peer, {})[node] = told["said"] or ""
    found += [_refused(fleet[node], node, peers, said) for (node, said), peers in refused.items()]
    found += [_gone(peer, told) for peer, told in gone.items()]
    return or_ok("ssh", "", found, f"works between nodes ({tried} tried)" if tried else "a single node has no peers")


def _refused(facts: Facts, node: str, peers: list[str], said: str) -> Finding:
    user = get(facts, "reach", "user")
    says = f"user {user} does not get onto {some(peers)}: {said}"
    return fail("ssh", node, says, _advice(said, some(peers), peers[0]), peers=len(peers))


def _gone(peer: str, told: dict[str, str]) -> Finding:
    says = f"it does not answer, and {some(list(told))} cannot log in there: {next(iter(told.values()))}"
    return fail("ssh", peer, says, "start it, or leave it out")


def _arrived(node: str, peer: str, told: Facts, own: Facts) -> list[Finding]:
    hostname = get(own, "names", "hostname")
    if hostname and told["hostname"] and _short(hostname) != _short(told["hostname"]):
        says = f"who goes to {peer} arrives at {told['hostname']}; {peer} calls itself {hostname}"
        return [fail("ssh", node, says, "two nodes with one address, or a wrong entry in DNS or ssh's configuration")]
    return []


def _advice(said: str, peers: str, first: str) -> str:
    if "ost key" in said:
        return f"add the host keys of {peers} to known_hosts of the job's user, or to /etc/ssh/ssh_known_hosts"
    if "ermission denied" in said:
        return "give the job's user a key without a passphrase, and put it into authorized_keys on all nodes"
    return f"log in by hand from there: ssh {first}"
