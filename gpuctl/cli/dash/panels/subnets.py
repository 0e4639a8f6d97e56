"""Subnets: `gpuctl subnets`, with the picture of a subnet on Enter."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

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


class SubnetsPanel:
    """Subnets of a region with their free addresses and who holds the rest."""

    name, title = "subnets", "Subnets"

    def __init__(self, request: DashRequest) -> None:
        options = {"--region": request.region, "--aws-profile": request.aws_profile}
        self._line = CommandLine(("subnets",), {name: value for name, value in options.items() if value})
        self._listing: Listing | None = None
        self._owners: Mapping[str, Owner] = {}
        self._findings: Sequence[Finding] = ()
        self._read_at = ""
        self.keys: Sequence[PanelKey] = (
            PanelKey("v", "only the subnets of a VPC", self._of_vpc, prompt="VPC", reads=True),
            PanelKey("e", "only the subnets of an EKS cluster", self._of_cluster, prompt="cluster", reads=True),
        )

    @property
    def command(self) -> str:
        return str(self._line)

    def _of_vpc(self, text: str) -> None:
        self._line.set("--vpc", text.strip())

    def _of_cluster(self, text: str) -> None:
        self._line.set("--cluster", text.strip())

    def read(self) -> float:
        """Ask AWS."""
        request = self._line.request(show.show, SubnetsRequest)
        listing = flow.list_subnets(flow.connect(request.region, request.aws_profile), request)
        self._owners, self._findings = owners(listing.subnets), judge(listing)
        self._listing, self._read_at = listing, time.strftime("%H:%M:%S")
        return PAUSE_S

    def view(self) -> View:
        if self._listing is None:
            return View()
        subnets = self._listing.subnets
        head, *texts = output.columns(show.HEAD, (show.row(subnet, self._owners) for subnet in subnets))
        lines = [Line(text, subnet.name) for text, subnet in zip(texts, subnets, strict=True)]
        wrong = [finding for finding in self._findings if finding.verdict is not Verdict.OK]
        lines += [Line(""), *finding_lines(wrong)] if wrong else []
        count = f"{output.plural(len(subnets), 'subnet')} in {self._listing.region}"
        return View(lines, head, [count], self._read_at)

    def detail(self, subject: str) -> Detail | None:
        """Return the picture of a subnet: a letter for the owner of each cell, · if it is free."""
        chosen = [one for one in self._listing.subnets if one.name == subject] if self._listing else []
        if not chosen:
            return None
        picture = [Line(click.unstyle(text)) for text in show.pictures(chosen, self._owners)]
        found = [one for one in self._findings if one.subject == subject and one.verdict is not Verdict.OK]
        line = CommandLine(("subnets",), {**self._line.options, "--subnet": subject})
        return Detail(subject, [*picture, *finding_lines(found)], f"{line} --picture")
