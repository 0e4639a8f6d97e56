"""Pages stand alone, can be read in light and dark, and show what was not measured as unknown."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise

import pytest

from gpuctl.domain.findings import Finding, Verdict
from gpuctl.pages import page as pages
from gpuctl.pages.page import Page, Section, Table, render

STYLES = resources.files(pages.__package__).joinpath("page.html").read_text()
TEXTS = ("text", "faint", "OK", "WARN", "UNKNOWN", "FAIL")
MARKS = ("s1", "s2", "s3", "s4", "s5", "s6", "other", "failed")
SHADES = ("h0", "h1", "h2", "h3", "h4")


class Tags(HTMLParser):
    """Checks that every element is closed where it should be."""

    VOID = frozenset({"meta", "br", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.all: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))
        self.open += [] if tag in self.VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def colours(dark: bool) -> dict[str, str]:
    blocks = re.findall(r":root \{(.*?)\}", STYLES, re.DOTALL)
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", blocks[dark]))


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_texts_and_marks_stand_out_from_the_background(dark: bool) -> None:
    values = colours(dark)
    assert {
        name: contrast(values[name], values["back"]) for name in TEXTS if contrast(values[name], values["back"]) < 4.5
    } == {}
    assert contrast(values["text"], values["bar"]) >= 4.5
    assert {name for name in MARKS if contrast(values[name], values["back"]) < 3} == set()


@pytest.mark.parametrize("dark", [False, True])
def test_shades_of_the_map_differ_in_lightness_alone_the_slowest_most(dark: bool) -> None:
    steps = [contrast(colours(dark)[shade], colours(dark)["back"]) for shade in SHADES]
    assert steps == sorted(steps)
    assert all(after / before >= 1.3 for before, after in pairwise(steps))


def test_a_page_is_well_formed_and_its_tables_have_headings() -> None:
    table = Table(("node", "GB/s"), [("<b>gpu-1</b>", 360.0), ("gpu-2", None)], "Nodes", frozenset({1}), {1: 400.0})
    findings = [Finding("pairs", "gpu-1", Verdict.WARN, "slow", {"busbw_gbs": None})]
    text = render(Page("Fleet <prod>", "today", [Section("A", findings=findings, tables=[table])]))
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert ("html", {"lang": "en"}) in tags.all
    assert [attrs["scope"] for tag, attrs in tags.all if tag == "th"].count("col") == 7
    assert "Fleet &lt;prod&gt;" in text
    assert "&lt;b&gt;gpu-1&lt;/b&gt;" in text
    assert '<td class="n bar" style="--share: 90.0%">360.0</td>' in text
    assert '<td class="n">?</td>' in text
    assert "busbw_gbs ?" in text


def test_a_page_loads_nothing_and_runs_nothing() -> None:
    text = render(Page("t", "now", [Section("A", tables=[Table(("x",), [("y",)], "z", folded=True)])]))
    assert not re.search(r"<script|\b(src|href)=|url\(|@import|https?://", text)
    assert "default-src 'none'" in text
    assert "<details><summary>z</summary>" in text
