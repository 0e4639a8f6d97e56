"""A full-screen command of gpuctl in a browser: its address is checked, then it is served until Ctrl-C."""

from __future__ import annotations

import importlib.util
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuctl.core.errors import InvalidInput
from gpuctl.edges import ports
from gpuctl.edges.programs import gpuctl_program

DOING = "serve the screen"
MODULES = ("aiohttp", "textual_serve")


@dataclass(frozen=True)
class Address:
    """An IP address and port to listen at; port 0: one that is free."""

    ip: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    @property
    def host(self) -> str:
        """Return the address as a URL has it."""
        return f"[{self.ip}]" if self.ip.version == 6 else str(self.ip)


def address(text: str, *, allow_remote: bool) -> Address:
    """Parse ADDRESS:PORT; `InvalidInput` for another form, and without `allow_remote` if others can reach it."""
    host, _, port = text.rpartition(":")
    try:
        ip = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
        number = int(port)
    except ValueError as error:
        raise InvalidInput(DOING, f"{text!r} is not an address and port", "use 127.0.0.1:8080") from error
    if not 0 <= number <= 65535:
        raise InvalidInput(DOING, f"{number} is not a port", "use one from 1024 to 65535, or 0 for any")
    if not ip.is_loopback and not allow_remote:
        wrong = f"other machines reach {ip}, and read without TLS what is on the screen"
        hint = "use 127.0.0.1 and `ssh -L`; --allow-remote serves it nevertheless"
        raise InvalidInput(DOING, wrong, hint)
    return Address(ip, number)


def need_server() -> None:
    """`InvalidInput` if the packages that serve the screen are not installed."""
    if missing := [name for name in MODULES if importlib.util.find_spec(name) is None]:
        wrong = f"{', '.join(missing)} is not installed"
        raise InvalidInput(DOING, wrong, "pip install 'gpuctl[web]' in gpuctl's environment")


def serve(at: Address, arguments: Sequence[str], title: str, on_ready: Callable[[str], None]) -> None:
    """Serve a command of gpuctl until Ctrl-C; `on_ready` gets the address with its token once it is reachable."""
    need_server()
    from gpuctl.edges.web_terminal import LOCAL_NAMES, WebTerminal

    hosts = LOCAL_NAMES if at.ip.is_loopback else ()
    terminal = WebTerminal([gpuctl_program(), *arguments], title, (*hosts, at.host) if hosts else ())
    try:
        listener = ports.listen(str(at.ip), at.port)
    except OSError as error:
        wrong = f"{at.host}:{at.port} cannot be used: {error.strerror or error}"
        raise InvalidInput(DOING, wrong, "choose another port, or 0 for one that is free") from error
    with listener:
        on_ready(f"http://{at.host}:{listener.getsockname()[1]}/?token={terminal.token}")
        terminal.run(listener)
