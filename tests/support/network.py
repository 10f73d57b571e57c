"""Several hosts on one machine: network namespaces that reach each other, and this machine, over one bridge.

It needs root and `ip` of iproute2. Everything is gone afterwards.
"""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

NETWORK = "10.213.7"
"""First three numbers of the addresses; nothing outside of the namespaces sees them."""


@dataclass(frozen=True)
class NetworkHost:
    """A host that has a network of its own.

    Attributes:
        name: Name of its namespace.
        address: By which the others reach it.
    """

    name: str
    address: str

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Give the command that runs another one on this host."""
        return ["ip", "netns", "exec", self.name, *arguments]


def missing() -> str:
    """Tell what this machine lacks for it; empty: nothing."""
    if os.geteuid():
        return "namespaces are made by root alone"
    return "" if shutil.which("ip") else "there is no ip (iproute2)"


@contextmanager
def network_hosts(count: int) -> Iterator[Sequence[NetworkHost]]:
    """Make hosts, each with a loopback device and an address that all the others reach, and this machine."""
    with ExitStack() as cleaning:
        suffix = uuid.uuid4().hex[:6]
        names = [f"outpost-{suffix}-{number}" for number in range(count)]
        switch = f"outpost-{suffix}-switch"
        for name in (switch, *names):
            _ip("netns", "add", name)
            cleaning.callback(_ip, "netns", "delete", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        hosts = []
        for number, name in enumerate(names):
            plug = f"port{number}"
            _ip("-n", switch, "link", "add", plug, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", switch, "link", "set", plug, "master", "bridge", "up")
            host = NetworkHost(name, f"{NETWORK}.{number + 1}")
            _ip("-n", name, "address", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            hosts.append(host)
        own = f"outpost{suffix}"  # goes with its peer
        _ip("link", "add", own, "type", "veth", "peer", "name", "machine", "netns", switch)
        _ip("-n", switch, "link", "set", "machine", "master", "bridge", "up")
        _ip("address", "add", f"{NETWORK}.254/24", "dev", own)
        _ip("link", "set", own, "up")
        yield hosts


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
