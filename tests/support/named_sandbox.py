"""Sandboxes that are only their names, for what never speaks to one."""

from __future__ import annotations

from host_client.sandbox.sandbox import Sandbox


class NamedSandbox(Sandbox):
    """A sandbox that is only its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def target(self) -> str:
        """The name."""
        return self.name


def named_sandboxes(count: int) -> list[Sandbox]:
    """Return so many, each with a name of its own."""
    return [NamedSandbox(f"unix:/{number}") for number in range(count)]
