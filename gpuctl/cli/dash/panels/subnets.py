"""Subnets: `gpuctl subnets`, with the picture of a subnet on Enter."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import click

from gpuctl.cli.dash.model import CommandLine, Detail, Line, PanelKey, View
from gpuctl.cli.dash.panels.nodes import finding_lines
from gpuctl.cli.dash.request import DashRequest
from gpuctl.cli.shared import output
from gpuctl.cli.subnets import show
from gpuctl.domain.findings import Finding, Verdict
from gpuctl.subnets import flow
from gpuctl.subnets.judge import judge
from gpuctl.subnets.model import Listing, Owner
from gpuctl.subnets.owners import owners
from gpuctl.subnets.request import SubnetsRequest

PAUSE_S = 300.0


@dataclass(frozen=True)
class _Reading:
    """Answer of AWS, and what follows from it. `at`: local time."""

    listing: Listing
    owners: Mapping[str, Owner]
    findings: Sequence[Finding]
    at: str


class SubnetsPanel:
    """Subnets of a region with their free addresses and who holds the rest."""

    name, title = "subnets", "Subnets"

    def __init__(self, request: DashRequest) -> None:
        options = {"--region": request.region, "--aws-profile": request.aws_profile}
        self._line = CommandLine(("subnets",), {name: value for name, value in options.items() if value})
        self._last: _Reading | None = None
        self._lock = threading.Lock()  # of both: a key may change them while AWS is asked
        self.keys: Sequence[PanelKey] = (
            PanelKey("v", "only the subnets of a VPC", self._of_vpc, prompt="VPC", reads=True),
            PanelKey("e", "only the subnets of an EKS cluster", self._of_cluster, prompt="cluster", reads=True),
        )

    @property
    def command(self) -> str:
        return str(self._line)

    def _of_vpc(self, text: str) -> None:
        self._only("--vpc", text)

    def _of_cluster(self, text: str) -> None:
        self._only("--cluster", text)

    def _only(self, option: str, text: str) -> None:
        """Change the command; what the one before has printed is no longer shown."""
        line = replace(self._line)
        line.set(option, text.strip())
        with self._lock:
            self._line, self._last = line, None

    def read(self) -> float:
        """Ask AWS; an answer to a command that was changed meanwhile is dropped, and AWS is asked again."""
        line = self._line
        request = line.request(show.show, SubnetsRequest)
        listing = flow.list_subnets(flow.connect(request.region, request.aws_profile), request)
        made = _Reading(listing, owners(listing.subnets), judge(listing), time.strftime("%H:%M:%S"))
        with self._lock:
            if line is not self._line:
                return 0.0
            self._last = made
        return PAUSE_S

    def view(self) -> View:
        last = self._last
        if last is None:
            return View()
        subnets = last.listing.subnets
        head, *texts = output.columns(show.HEAD, (show.row(subnet, last.owners) for subnet in subnets))
        lines = [Line(text, subnet.name) for text, subnet in zip(texts, subnets, strict=True)]
        wrong = [finding for finding in last.findings if finding.verdict is not Verdict.OK]
        lines += [Line(""), *finding_lines(wrong)] if wrong else []
        count = f"{output.plural(len(subnets), 'subnet')} in {last.listing.region}"
        return View(lines, head, [count], last.at)

    def detail(self, subject: str) -> Detail | None:
        """Return the picture of a subnet: a letter for the owner of each cell, · if it is free."""
        last = self._last
        chosen = [one for one in last.listing.subnets if one.name == subject] if last else []
        if last is None or not chosen:
            return None
        picture = [Line(click.unstyle(text)) for text in show.pictures(chosen, last.owners)]
        found = [one for one in last.findings if one.subject == subject and one.verdict is not Verdict.OK]
        line = CommandLine(("subnets",), {**self._line.options, "--subnet": subject})
        return Detail(subject, [*picture, *finding_lines(found)], f"{line} --picture")
