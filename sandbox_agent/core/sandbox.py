"""What the daemon knows about the sandbox it serves, and what a call names in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox_agent.core.digest import Digests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox_agent.core.journal import Journal
    from sandbox_agent.core.paths import Roots
    from sandbox_api.limits import Limits
    from sandbox_api.profile import Profile


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The sandbox of one daemon; the same for all its calls.

    Attributes:
        roots: Directories below which the daemon reads and writes.
        home: Absolute path of the agent home; lies in a root.
        workspace: Absolute path of the workspace, links resolved; lies in a root.
        environment: The daemon's own environment, where the place of a call names no variable.
        limits: The daemon's limits of one bundle.
        journal: Where restores in progress are noted.
        digests: What captures have found.
    """

    roots: Roots
    home: bytes
    workspace: bytes
    environment: Mapping[str, str]
    limits: Limits
    journal: Journal
    digests: Digests = field(default_factory=Digests)


@dataclass(frozen=True, slots=True)
class CliHome:
    """What names the home of a CLI.

    Attributes:
        variable: Variable of the CLI's environment that names it when it is set to something; empty: none does.
        directory: Where it lies below the agent home otherwise; empty: it is the agent home.
        variables: Environment of the CLI where it differs from the daemon's own.
        follow_root_link: Accept a home that is itself a symbolic link.
    """

    variable: str
    directory: str
    variables: Mapping[str, str]
    follow_root_link: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """What a bundle call names: a format and one of its sessions, as the CLI with these variables would find it.

    Attributes:
        profile: The format; checked.
        conversation_id: Empty where the call is about all sessions of the format.
        variables: Environment of the CLI where it differs from the daemon's own.
        follow_root_link: Accept a CLI home that is itself a symbolic link.
    """

    profile: Profile
    conversation_id: str
    variables: Mapping[str, str]
    follow_root_link: bool = False

    @property
    def cli_home(self) -> CliHome:
        """The home that the sessions lie in."""
        profile = self.profile
        return CliHome(profile.root_variable, profile.root_directory, self.variables, self.follow_root_link)
