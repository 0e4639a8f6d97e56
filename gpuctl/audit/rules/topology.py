"""Rule on the matrix of `nvidia-smi topo -m`: pairs of GPUs that lack NVLinks which the others have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from gpuctl.core.text import named
from gpuctl.domain.findings import Finding, fail, or_ok
from gpuctl.domain.node_facts import Facts, Fleet, equal, get, parts_unread, unread

CHECK = "topology"
ALIKE = 0.6  # share of pairs from which the others are odd; where GPUs form a mesh by design, no kind has as many
HINT = "check nvidia-smi nvlink -s; drain the node and reset its GPUs together"


def topology(fleet: Fleet) -> list[Finding]:
    """Every pair of GPUs has the NVLinks of the others, and all nodes have the same matrix."""
    findings = [finding for node, facts in fleet.items() for finding in _node(node, facts)]
    named_already = {finding.subject for finding in findings}
    kinds = {node: _kinds(facts) for node, facts in fleet.items() if node not in named_already}
    findings += equal(CHECK, "{} between its GPUs", kinds, HINT)
    known = [kind for kind in kinds.values() if kind]
    return or_ok(CHECK, "", findings, f"{known[0]} between the GPUs" if known else "no pairs of GPUs to compare")


def _links(facts: Facts) -> Mapping[str, str | None]:
    return get(facts, "topology", "links") or {}


def _kinds(facts: Facts) -> str | None:
    """ "28 NV18"; None if a pair is not known."""
    counts = Counter(_links(facts).values())
    return (
        None if None in counts or not counts else ", ".join(f"{number} {kind}" for kind, number in counts.most_common())
    )


def _node(node: str, facts: Facts) -> Iterator[Finding]:
    yield from parts_unread(CHECK, node, facts, CHECK)
    links = _links(facts)
    bad = {pair: link for pair, link in links.items() if link in {"ERR!", "?", "N/A"}}
    if bad:
        yield unread(
            CHECK,
            node,
            f"the path between {named(bad, 4)} is",
            f"nvidia-smi prints {named(set(map(str, bad.values())))}",
        )
    known = {pair: link for pair, link in links.items() if link and pair not in bad}
    if not known:
        if links and not bad:
            yield unread(CHECK, node, "the paths between its GPUs are", "no pair has one in the matrix")
        return
    usual, number = Counter(known.values()).most_common(1)[0]
    odd = {pair: link for pair, link in known.items() if link != usual}
    if not odd or not usual.startswith("NV") or number < ALIKE * len(known):
        return
    gpus = set.intersection(*({*pair.split()} for pair in odd))
    shown = (
        f"all of {named(gpus)}"
        if gpus and len(odd) > 1
        else named((f"{pair.replace(' ', '-')}: {link}" for pair, link in odd.items()), 4)
    )
    message = f"{len(odd)} of {len(known)} pairs of GPUs have no {usual}: {shown}"
    yield fail(CHECK, node, message, HINT, odd_pairs=len(odd), pairs=len(known))
