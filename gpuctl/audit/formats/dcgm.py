"""Read what DCGM prints: `dcgmi diag` (JSON of DCGM 3 and 4, and its table), nvlink, health, discovery."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuctl.audit.formats.model import FILE, Record, doubt
from gpuctl.core.text import plural
from gpuctl.domain.findings import SEVERITY, Finding, Verdict

ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # of DCGM 4 and 3
STATUSES = ("pass", "fail", "warn", "skip", "not run")
HEALTH = {"Healthy": Verdict.OK, "Warning": Verdict.WARN, "Failure": Verdict.FAIL}


# ---- diag ------------------------------------------------------------------------------------------------------------


def is_diag(start: str) -> bool:
    return any(f'"{root}"' in start for root in ROOTS)


def read_diag(text: str) -> Record:
    """Subject "dcgm": {version, driver, tests, error, notes, unread}.

    `tests`: {name, category, status, entity, warnings} for each result, status in lower case, entity such as "GPU 0",
    "" for the whole test; warnings: {text, id, severity}, None where DCGM 3 has none. `error`: why it did not run.
    """
    documents, whole = _documents(text)
    roots = [
        (document, document[root]) for document in documents for root in ROOTS if isinstance(document.get(root), dict)
    ]
    findings = [] if whole else [doubt("its JSON is cut or damaged", "save the whole output of dcgmi diag -j")]
    if not roots:
        return Record(findings=tuple(findings) or (doubt("it has no result of a diagnosis"),))
    tests: list[dict[str, Any]] = []
    notes: list[str] = []
    errors: list[str] = []
    version = driver = None
    for document, root in roots:
        metadata = document.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else root
        version = _text(metadata.get("version")) or version
        driver = _text(metadata.get("Driver Version Detected")) or driver
        errors += [error for key in ("runtime_error", "error") if (error := _text(root.get(key)))]
        for category, test in _tests(root):
            tests += _results(category, test)
            notes += _texts(_mapping(test.get("test_summary")).get("info"))
    facts = {
        "version": version,
        "driver": driver,
        "tests": tests,
        "error": "; ".join(errors) or None,
        "notes": notes[:64],
    }
    return Record({"dcgm": {**facts, "unread": {}}}, tuple(findings))


def _documents(text: str) -> tuple[list[dict[str, Any]], bool]:
    """JSON objects of a text, which may have a banner before them and prompts between; False if one is damaged."""
    found: list[Any] = []
    at = text.find("{")
    decoder = json.JSONDecoder()
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found, False
        found.append(value)
        at = text.find("{", end)
    return [value for value in found if isinstance(value, dict)], True


def _tests(root: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(category, test) of a result, and of each iteration."""
    for category in _list(root.get("test_categories")):
        for test in _list(_mapping(category).get("tests")):
            yield _text(_mapping(category).get("category")) or "", _mapping(test)
    for iteration in _list(root.get("iterations")):
        plain = _mapping(iteration)
        yield from _tests(plain)
        yield from _tests(_mapping(plain.get("result")))


def _results(category: str, test: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A result for each entity; the summary counts where no entity has one, or where it is worse than all of them."""
    name = _text(test.get("name")) or "?"
    rows = [_result(category, name, _entity(result), result) for result in map(_mapping, _list(test.get("results")))]
    summary = _mapping(test.get("test_summary"))
    worst = max((_rank(row["status"]) for row in rows), default=-1)
    if "test_summary" in test and _rank(_text(summary.get("status"))) > worst:
        rows.append(_result(category, name, "", summary))
    yield from rows or [_result(category, name, "", {})]


def _rank(status: str | None) -> int:
    """Severity: what is not known to be fine is worse than what is."""
    order = {"pass": 0, "skip": 1, "warn": 2, "fail": 4}
    return order.get((status or "").lower(), 3)


def _result(category: str, name: str, entity: str, result: Mapping[str, Any]) -> dict[str, Any]:
    status = (_text(result.get("status")) or "missing").lower()
    warnings = [_warning(value) for value in _as_list(result.get("warnings"))]
    return {
        "name": name,
        "category": category,
        "status": status,
        "entity": entity,
        "warnings": [w for w in warnings if w],
    }


def _entity(result: Mapping[str, Any]) -> str:
    if "entity_id" in result:
        return f"{_text(result.get('entity_group')) or 'entity'} {result['entity_id']}"
    ids = _text(result.get("gpu_ids")) or _text(result.get("gpu_id")) or ""
    return f"GPU {ids}" if ids else ""


def _warning(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return {
            "text": _text(value.get("warning")) or "",
            "id": _number(value.get("error_id")),
            "severity": _number(value.get("error_severity")),
        }
    text = _text(value)
    return {"text": text, "id": None, "severity": None} if text else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _texts(value: Any) -> list[str]:
    return [text for one in _as_list(value) if (text := _text(one))]


def _text(value: Any) -> str | None:
    return str(value).strip() or None if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None


def _number(value: Any) -> int | None:
    text = _text(value) or ""
    return int(text) if re.fullmatch(r"\d{1,9}", text) else None


# ---- diag's table ----------------------------------------------------------------------------------------------------

_TABLE_LINE = re.compile(r"\|[^|]+\|[^|]*\|?$|[|+][-=]+[^|]*[|+]?$")
_RESULT = re.compile(r"(pass|fail|warn|skip|not run)\b(?:\s*-\s*(.*))?(?P<rest>.*)$", re.IGNORECASE)
_ENTITY = re.compile(r"(GPU|CPU|Switch)s?:?\s*(\d+):\s*(pass|fail|warn|skip|not run)\b", re.IGNORECASE)


def is_diag_table(start: str) -> bool:
    return bool(re.search(r"^\| Diagnostic\s+\| Result", start, re.MULTILINE))


def read_diag_table(text: str) -> Record:
    """Subject "dcgm" of the table that dcgmi prints without -j; warnings in it have no ids."""
    tests: list[dict[str, Any]] = []
    version: str | None = None
    driver: str | None = None
    for name, cell in _rows(text):
        if name.startswith("DCGM Version"):
            version = cell
        elif name.startswith("Driver Version"):
            driver = cell
        elif entity := _ENTITY.match(cell):
            row = {"name": tests[-1]["name"] if tests else "?", "category": "", "status": entity[3].lower()}
            tests.append({**row, "entity": f"{entity[1]} {entity[2]}", "warnings": []})
        elif name and (result := _RESULT.match(cell)):
            damaged = result["rest"].strip() and result[1].lower() != "fail"
            row = {"name": name, "category": "", "status": "missing" if damaged else result[1].lower()}
            tests.append({**row, "entity": _entity_of(result[2]), "warnings": []})
        elif tests and cell and (name.lower().startswith(("warning", "error")) or (not name and tests[-1]["warnings"])):
            _continued(tests[-1], cell, new=bool(name))
        elif tests and name and not name.lower().startswith("info"):
            tests.append({"name": name, "category": "", "status": "missing", "entity": "", "warnings": []})
    facts: dict[str, Any] = {"version": version, "driver": driver, "tests": tests, "error": None, "notes": []}
    return Record({"dcgm": {**facts, "unread": {}}}, tuple(_damage(text)))


def _damage(text: str) -> Iterator[Finding]:
    """UNKNOWN for a table without its last line, and for lines that are none of a table."""
    if not re.search(r"^\+-+\+-+\+\s*\Z", text.rstrip(), re.MULTILINE):
        yield doubt("the table of dcgmi diag is cut")
    yield from _strange_lines(text, "the table")


def _strange_lines(text: str, what: str) -> Iterator[Finding]:
    """UNKNOWN for lines with a part of a row that are no row."""
    odd = [line.strip() for line in text.splitlines() if "|" in line and not _TABLE_LINE.match(line.strip())]
    if odd:
        yield doubt(f"{plural(len(odd), 'line')} of {what} not understood, the first: {odd[0][:80]}")


def _rows(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        cells = line.strip().strip("|").split("|")
        if line.lstrip().startswith("|") and len(cells) == 2 and not line.lstrip().startswith(("|=", "|--", "|-----")):
            yield cells[0].strip(), cells[1].strip()


def _entity_of(text: str | None) -> str:
    """ "All" -> "", "GPUs: 0, 3" -> "GPU 0, 3"."""
    numbers = re.findall(r"\d+", text or "")
    return f"GPU {', '.join(numbers)}" if numbers else ""


def _continued(test: dict[str, Any], cell: str, new: bool) -> None:
    if new:
        test["warnings"].append({"text": cell, "id": None, "severity": None})
    else:
        test["warnings"][-1]["text"] += f" {cell}"


# ---- nvlink, health, discovery ---------------------------------------------------------------------------------------


_COUNTER = re.compile(r"(?:CRC(?: FLIT| Data)?|Replay|Recovery|ECC(?: Data)?) Error")


def is_nvlink(start: str) -> bool:
    return "NVLINK Error Counts" in start


def read_nvlink(text: str) -> Record:
    """Subject "nvlink_errors", of `dcgmi nvlink -e` as JSON or table."""
    rows = _json_counters(text) if '"header"' in text else _table_counters(text)
    counters: dict[int, dict[str, int]] = {}
    odd = []
    for gpu, name, value in rows:
        if value.isdigit() and _COUNTER.fullmatch(name):
            counts = counters.setdefault(gpu, {})
            known = "CRC Errors" if name.startswith("CRC") else f"{name}s"
            counts[known] = counts.get(known, 0) + int(value)
        else:
            odd.append(f"{name}: {value}")
    findings = [] if counters else [doubt("it has no counter of a GPU")]
    if odd:
        findings.append(
            doubt(f"{plural(len(odd), 'counter')} without a number or a known name, the first: {odd[0][:80]}")
        )
    if strange := re.findall(r"^\|\s*Link (?!\d+\s*\|)(.*?)\s*\|", text, re.MULTILINE):
        findings.append(doubt(f"the counters of link {strange[0][:80]} belong to no link"))
    if '"header"' not in text:
        findings += _strange_lines(text, "counters")
    if not _documents(text)[1] or ('"header"' not in text and not re.search(r"\+-+\+-+\+\s*\Z", text.rstrip())):
        findings.append(doubt("it is cut"))
    gpus = [{"gpu": gpu, "links": None, "errors": counts} for gpu, counts in counters.items()]
    return Record({"nvlink_errors": {"gpus": gpus, "unread": {}}} if gpus else {}, tuple(findings))


def _json_counters(text: str) -> Iterator[tuple[int, str, str]]:
    for document in _documents(text)[0]:
        header = " ".join(_texts(document.get("header")))
        gpu = re.search(r"GPU (\d+)", header)
        for link in _mapping(document.get("body")).values():
            for name, child in _mapping(_mapping(link).get("children")).items():
                yield int(gpu[1]) if gpu else 0, name, _text(_mapping(child).get("value")) or ""


def _table_counters(text: str) -> Iterator[tuple[int, str, str]]:
    gpu = 0
    for line in text.splitlines():
        if head := re.match(r"\|\s*GPU (\d+)\s*\|?\s*$", line.strip()):
            gpu = int(head[1])
        elif row := re.match(r"\|\s*([^|]+?)\s*\|\s*([^|\s][^|]*?)\s*\|?$", line.strip()):
            yield gpu, row[1].removeprefix("-> "), row[2]


def is_health(start: str) -> bool:
    return "Overall Health" in start


def read_health(text: str) -> Record:
    """Verdict of `dcgmi health -c`, as JSON or table."""
    pattern = r'Overall Health"?\s*(?:\|\s*|:\s*\{\s*"value"\s*:\s*")([A-Za-z ]+?)\s*[|"]'
    values = [value.strip() for value in re.findall(pattern, text)]
    if len(values) < text.count("Overall Health"):
        values.append("")
    worst = max(values, key=lambda value: SEVERITY.index(HEALTH.get(value, Verdict.UNKNOWN)), default="")
    verdict = HEALTH.get(worst, Verdict.UNKNOWN)
    message = f"DCGM's overall health is {worst}" if worst else "DCGM's overall health is not in it"
    return Record(
        findings=(
            Finding(
                "dcgm",
                "",
                verdict,
                message,
                {},
                "dcgmi diag -r 2, once it is idle" if verdict is not Verdict.OK else "",
            ),
        )
    )


def is_discovery(start: str) -> bool:
    return bool(re.search(r"^\d+ GPUs? found\.$", start, re.MULTILINE))


def read_discovery(text: str) -> Record:
    stated, rows = re.search(r"^(\d+) GPUs? found", text, re.MULTILINE), len(re.findall(r"Device UUID:|UUID: ", text))
    number = int(stated[1]) if stated else 0
    findings = () if number == rows else (doubt(f"it states {plural(number, 'GPU')}, and lists {rows}"),)
    return Record(findings=findings, judged=f"lists {plural(rows, 'GPU')} of DCGM")


def is_other(start: str) -> bool:
    """True for sentences by which dcgmi refuses."""
    return bool(
        re.search(
            r"^(?:Error: unable to establish a connection|Unable to connect to host engine|Error: )",
            start,
            re.MULTILINE,
        )
    )


def read_other(text: str) -> Record:
    line = next(line for line in text.splitlines() if line.startswith(("Error", "Unable")))
    return Record(
        findings=(
            Finding(
                FILE,
                "",
                Verdict.UNKNOWN,
                f"DCGM did not answer: {line[:160]}",
                {},
                "check `systemctl status nvidia-dcgm`",
            ),
        )
    )
