"""The page for browsers: content, escaping, and what it does not show."""

from __future__ import annotations

import http.client

import pytest

from gpuctl.core.errors import InvalidInput
from gpuctl.edges.metrics_server import WEB_PAGE, serving
from gpuctl.pages.page import render
from gpuctl.reservations.demo import Demo
from gpuctl.reservations.rules.model import HOUR, Caller
from gpuctl.reservations.serve import page_address, page_note
from gpuctl.reservations.web_page import WebPage, page


def site() -> Demo:
    """ada has GPUs on the first node, eve the second, which is in doubt; cy waits."""
    demo = Demo()
    for number, (person, gpus) in enumerate([("ada", 4), ("<b>eve", 8), ("cy", 16)]):
        call = {"do": "submit", "key": f"key-000{number}", "request": {"gpus": gpus, "length_s": HOUR}}
        demo.service.answer(Caller(person, person), call)
    demo.service.nodes.doubts["gpu-2"] = "MIG is enabled"
    demo.now += 600
    return demo


def test_the_page_has_availability_queue_and_who_has_what_until_when() -> None:
    html = render(page(site().state()))
    counts = (
        '<th scope="row">h100</th><td class="n">4</td><td class="n">12</td><td class="n">0</td><td class="n">16</td>'
    )
    assert counts in html
    assert '<td>unknown</td><td class="n">?</td><td class="n">8</td><td>MIG is enabled</td>' in html
    assert "unknown, so given to nobody: gpu-2" in html
    session = "<td>0, 1, 2, 3</td><td>ada</td><td>active</td><td>2026-01-05 08:00</td><td>2026-01-05 09:00</td>"
    assert session in html
    assert 'aria-label="Timeline of 2 sessions; the table after it has the same content"' in html
    assert "<b>eve" not in html
    assert "&lt;b&gt;eve" in html


def test_the_page_has_no_script_no_address_and_no_variables() -> None:
    html = render(page(site().state()))
    assert not [word for word in ("<script", "http:", "https:", "CUDA_VISIBLE", "ssh ", "url(") if word in html]


def test_an_empty_site_and_a_service_without_an_answer_have_a_page() -> None:
    html = render(page(Demo().state()))
    assert "Nobody waits." in html
    assert "Nobody has a GPU." in html
    assert "cannot be read: no &lt;db&gt;" in render(page({"error": "no <db>"}))


def test_many_browsers_cost_one_answer_of_the_service() -> None:
    calls = []
    shown = WebPage(lambda: calls.append(1) or {"error": "x"})  # type: ignore[func-returns-value]
    assert shown.text() == shown.text()
    assert len(calls) == 1


def test_an_error_has_a_page_and_a_line_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    def state() -> dict[str, object]:
        raise ValueError("bad row")

    assert "Unknown" in WebPage(state).text()
    assert capsys.readouterr().err == "the page for browsers cannot be made: ValueError: bad row\n"


def test_other_machines_read_no_reason_of_a_node() -> None:
    shown = WebPage(site().state, public=True).text()
    assert "MIG is enabled" not in shown
    assert "<td>not usable</td>" in shown


def test_port_0_is_refused() -> None:
    with pytest.raises(InvalidInput, match="would be unknown"):
        page_address("0")


def request(port: int, method: str = "GET", path: str = "/", host: str = "localhost") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": host})
    return connection.getresponse()


def test_the_page_is_read_only_and_for_the_names_of_this_host_only() -> None:
    with serving(("127.0.0.1", 0), lambda: "<p>page</p>", WEB_PAGE) as port:
        answer = request(port)
        assert (answer.status, answer.read()) == (200, b"<p>page</p>")
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        for host in (f"127.0.0.1:{port}", "[::1]:80", "LOCALHOST"):
            assert request(port, host=host).status == 200
        for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "10.0.0.1", ""):
            assert request(port, host=host).status == 403
        assert request(port, path="/metrics").status == 404
        assert request(port, "POST").status == 501


@pytest.mark.parametrize(
    ("text", "at", "public"),
    [("8000", ("127.0.0.1", 8000), False), ("[::1]:80", ("::1", 80), False), ("10.0.0.5:80", ("10.0.0.5", 80), True)],
)
def test_only_an_address_that_is_named_is_reached_from_elsewhere(text: str, at: tuple[str, int], public: bool) -> None:
    assert page_address(text) == at
    assert ("everybody who can reach it" in page_note(*at)) is public
