"""Prices of instance types: those that gpuctl carries, and those of AWS's Pricing API, stored for later plans."""

from __future__ import annotations

import fcntl
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import yaml

import gpuctl
from gpuctl.core import json_file
from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import cache_dir, private, write_atomically
from gpuctl.domain.findings import Finding, ok, unknown, unknown_because, warn
from gpuctl.edges.aws import Aws, Request
from gpuctl.eks import price_list
from gpuctl.eks.cost import NETWORK_BALANCER, Price, Prices

CARRIED = Path(gpuctl.__file__).parent / "data" / "ec2_prices.yml"
PRICING_REGION = "us-east-1"  # the Pricing API answers in few regions, and there for all
MOST_PRODUCTS = 50  # of one type: the filters leave one or two
HINT = "remove it: `gpuctl eks plan NAME --prices` writes it again"


@dataclass(frozen=True)
class _Row:
    usd: float
    day: str
    source: str


@dataclass(frozen=True)
class _File:
    """Stored prices of a region by instance type."""

    region: str
    prices: dict[str, _Row]


def _file(region: str) -> Path:
    return cache_dir() / "eks-prices" / f"{region}.json"


def read(region: str) -> Prices:
    """The prices that gpuctl carries, and the stored ones of this region, or the error of a damaged file."""
    plain = yaml.safe_load(CARRIED.read_text())
    day = date.fromisoformat(str(plain["date"]))
    listed: dict[tuple[str, str], Price] = {}
    damage = None
    try:
        listed = _stored(region)
    except InvalidInput as error:
        damage = error
    return Prices(plain["region"], day, plain["source"], plain["prices"], listed, damage)


def judge(prices: Prices) -> list[Finding]:
    """UNKNOWN if the stored prices could not be read: the carried ones are used, which may be older."""
    if prices.damage is None:
        return []
    message = f"{prices.damage}; the prices that gpuctl carries are used"
    return [unknown("prices", "stored prices", message, prices.damage.hint)]


def of_balancer(region: str) -> str:
    """Price of a Network Load Balancer in words, with its source; UNKNOWN with the reason. `region`: "" for UNKNOWN."""
    if not region:
        return "UNKNOWN USD an hour (without AWS, its region is not known)"
    price = read(region).of(region, NETWORK_BALANCER)
    if price is None:
        return f"UNKNOWN USD an hour (no price of it in {region} is known: `gpuctl eks plan NAME --prices` asks AWS)"
    return f"{price.usd:.4g} USD an hour ({price.origin(datetime.now(UTC).date())})"


def _stored(region: str) -> dict[tuple[str, str], Price]:
    path = _file(region)
    if not path.exists():
        return {}
    doing = f"read the prices of {path}"
    value = json_file.load(path, doing, HINT)
    file = json_file.fitting(value, _File, doing, HINT)
    if file.region != region:
        raise InvalidInput(doing, f"they are of {file.region}, not of {region}", HINT)
    latest = datetime.now(UTC).date() + timedelta(days=1)  # of another machine's clock
    try:
        prices = {
            (region, name): Price(row.usd, date.fromisoformat(row.day), row.source) for name, row in file.prices.items()
        }
    except ValueError as error:
        raise InvalidInput(doing, f"a date is wrong: {error}", HINT) from error
    for (_, name), one in prices.items():
        if not 0 < one.usd < math.inf:
            raise InvalidInput(doing, f"the price of {name} is {one.usd:g}", HINT)
        if one.day > latest:
            raise InvalidInput(doing, f"the price of {name} is of {one.day}, a day to come", HINT)
    return prices


def refresh(aws: Aws, types: Sequence[str]) -> list[Finding]:
    """Ask the Pricing API for the prices of types in the region of `aws`, store them, and report what it lacks.

    A price that is not answered leaves the stored one as it is, with its date.
    """
    today, region = datetime.now(UTC).date(), aws.region
    pricing = Aws(PRICING_REGION, aws.profile)
    counter = itertools.count(1)  # of all requests: a filter that AWS ignored would list every product there is

    def bounded(product: str) -> str:
        if next(counter) > MOST_PRODUCTS * len(types):
            raise GpuctlError("read prices", f"the Pricing API lists more than {MOST_PRODUCTS} products a type")
        return product

    answers = pricing.read_all({name: _request(region, name) for name in types}, bounded)
    prices: dict[str, Price] = {}
    findings = []
    for name, answer in answers.items():
        try:
            prices[name] = _price(answer, region, name, today)
            findings.append(ok("prices", name, f"{prices[name].usd:g} USD an hour, {prices[name].origin(today)}"))
        except GpuctlError as error:
            # Beside the nodes and the control plane: without these prices the cost of a plan is a lower bound.
            judged = warn if name in price_list.PRODUCTS else unknown
            message = f"{error.wrong}; an older price stays in use, if one is known"
            findings.append(judged("prices", name, message, error.hint))
    try:
        _store(region, prices)
    except GpuctlError as error:
        findings.append(unknown_because("prices", "stored prices", error))
    return findings


def _request(region: str, name: str) -> Request:
    parameters = price_list.request(region, name)
    return Request(f"read the price of {name}", "pricing", "GetProducts", "PriceList", parameters)


def _price(answer: list[str] | GpuctlError, region: str, name: str, today: date) -> Price:
    if isinstance(answer, GpuctlError):
        raise answer
    return price_list.price(answer, region, name, today)


def _store(region: str, prices: Mapping[str, Price]) -> None:
    """Replace the stored prices of these types; a damaged file is replaced as a whole."""
    if not prices:
        return
    path = _file(region)
    with _locked(path):
        try:
            old = _stored(region)
        except InvalidInput:
            old = {}
        merged = {**{name: one for (_, name), one in old.items()}, **prices}
        rows = {name: {"usd": one.usd, "day": str(one.day), "source": one.source} for name, one in merged.items()}
        whole = {"region": region, "prices": dict(sorted(rows.items()))}
        write_atomically(path, json.dumps(whole, indent=1) + "\n")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Serialise changes of concurrent plans."""
    try:
        private(path.parent)
        with path.with_name(f".{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise GpuctlError(f"store prices in {path}", error.strerror or str(error)) from error
