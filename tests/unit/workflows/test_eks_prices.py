"""Stored prices: a damaged file is UNKNOWN and stops nothing, and two who store at once lose no price."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuctl.domain.findings import Verdict
from gpuctl.eks.cost import NETWORK_BALANCER, Price
from gpuctl.workflows import eks_prices

TODAY = datetime.now(UTC).date()
REGION = "us-west-2"


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GPUCTL_CACHE_DIR", str(tmp_path / "gpuctl"))
    return eks_prices._file(REGION)


def store(*names: str) -> None:
    eks_prices._store(REGION, {name: Price(0.6, TODAY, "AWS") for name in names})


def test_what_is_stored_is_read_with_its_region(file: Path) -> None:
    store("g4dn.xlarge")
    prices = eks_prices.read(REGION)
    assert (prices.of(REGION, "g4dn.xlarge"), eks_prices.judge(prices)) == (Price(0.6, TODAY, "AWS"), [])
    assert json.loads(file.read_text())["region"] == REGION


def with_row(region: str = REGION, **row: Any) -> str:
    whole = {"usd": 0.6, "day": str(TODAY), "source": "AWS", **row}
    return json.dumps({"region": region, "prices": {"g4dn.xlarge": whole}})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("{}", "region"),
        (with_row("us-east-1"), "they are of us-east-1, not of us-west-2"),
        (with_row(day=str(TODAY + timedelta(days=3))), "a day to come"),
        (with_row(day="soon"), "a date is wrong"),
        (with_row(usd=0), "the price of g4dn.xlarge is 0"),
    ],
)
def test_a_damaged_file_is_unknown_and_gives_no_price(file: Path, text: str, words: str) -> None:
    store("g4dn.xlarge")
    file.write_text(text)
    prices = eks_prices.read(REGION)
    (finding,) = eks_prices.judge(prices)
    assert (finding.verdict, words in finding.message, prices.listed) == (Verdict.UNKNOWN, True, {})


def test_prices_that_are_stored_at_once_are_all_kept() -> None:
    names = [f"g{number}.xlarge" for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store, names))
    assert sorted(name for _, name in eks_prices.read(REGION).listed) == sorted(names)


def test_the_price_of_a_load_balancer_has_its_source_and_is_unknown_without_one() -> None:
    assert eks_prices.of_balancer(REGION).startswith("UNKNOWN USD an hour (no price of it in us-west-2 is known")
    assert eks_prices.of_balancer("").startswith("UNKNOWN USD an hour")
    store(NETWORK_BALANCER)
    assert eks_prices.of_balancer(REGION) == f"0.6 USD an hour (AWS, {TODAY})"
