"""What a cluster refuses, in words, from answers of a real API server (Kubernetes 1.20)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuctl.core.errors import GpuctlError, Unreachable
from gpuctl.domain.kube_errors import Conflict, Forbidden, NotFound, NotLoggedIn, error_of


def error(code: int, message: str, causes: list[dict[str, Any]] | None = None) -> GpuctlError:
    return error_of("apply Pod p", code, json.dumps({"message": message, "details": {"causes": causes or []}}))


def test_a_forbidden_verb_names_who_may_not_do_what_where() -> None:
    said = error(
        403, 'pods "p" is forbidden: User "ann" cannot patch resource "pods" in API group "" in the namespace "ml"'
    )
    assert isinstance(said, Forbidden)
    assert said.wrong == '"ann" has no permission to patch pods in the namespace ml'


def test_what_is_not_of_a_namespace_is_of_the_cluster() -> None:
    said = error(
        403, 'nodes is forbidden: User "ann" cannot list resource "nodes" in API group "" at the cluster scope'
    )
    assert said.wrong == '"ann" has no permission to list nodes in the whole cluster'


def test_a_quota_tells_what_is_asked_and_what_is_in_use() -> None:
    said = error(403, 'pods "p" is forbidden: exceeded quota: gpus, requested: pods=1, used: pods=4, limited: pods=4')
    assert said.wrong == "the quota gpus does not allow pods=1 more: pods=4 of pods=4 is in use"


def test_a_conflict_names_the_field_and_its_owner() -> None:
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl" using v1', "field": ".data.a"}
    said = error(409, "Apply failed with 1 conflict", [cause])
    assert isinstance(said, Conflict)
    assert said.wrong == "others own .data.a (kubectl)"


def test_what_is_invalid_is_told_field_by_field() -> None:
    said = error(422, "Pod is invalid", [{"field": "spec.containers", "message": "Required value"}])
    assert said.wrong == "spec.containers: Required value"


def test_a_server_that_is_busy_is_one_to_ask_again() -> None:
    assert isinstance(error_of("list pods", 503, "apiserver not ready"), Unreachable)
    assert not isinstance(error_of("list pods", 500, "internal error"), Unreachable)


def test_no_login_is_told_from_no_answer() -> None:
    assert isinstance(error(401, "Unauthorized"), NotLoggedIn)


def test_an_answer_that_is_no_json_is_quoted() -> None:
    said = error_of("read Pod p", 404, "404 page not found\n")
    assert isinstance(said, NotFound)
    assert said.wrong == "404 page not found"


@pytest.mark.parametrize(
    ("page", "line"),
    [
        ("<html><head><title>502 Bad Gateway</title></head>\n<body>nginx</body></html>", "502 Bad Gateway"),
        (
            "<!DOCTYPE html>\n<style>\nb {}\n</style><body>\n<b>The&nbsp;proxy</b> refuses\nhelp: 1234</body>",
            "HTTP status 502: The proxy refuses",
        ),
        ("upstream connect error\nreset reason: connection failure", "HTTP status 502: upstream connect error"),
        ("", "HTTP status 502"),
        ("x" * 5000, "HTTP status 502: " + "x" * 200),
    ],
)
def test_an_error_page_is_summed_up_in_one_line_with_its_status(page: str, line: str) -> None:
    assert error_of("list pods", 502, page).wrong == f"the cluster is not able to answer: {line}"
