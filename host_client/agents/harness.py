"""An agent: an adapter's class made usable, with its features checked once.

The one rule: what is wrong with an agent is said when it is made, before a sandbox is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, get_args

from host_client.agents.adapter import AgentAdapter, UsageMode
from host_client.agents.catalogue import CATALOGUE, check_tool
from host_client.errors import ConfigurationError, printable
from sandbox_api.names import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from host_client.agents.adapter import AgentFeatures
    from host_client.agents.tool import Tool

_MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class CliHarness:
    """An agent that is a command line.

    Attributes:
        bind: Returns the adapter of one turn. A new one each time when the adapter remembers what lines said.
    """

    bind: Callable[[], AgentAdapter]


@dataclass(frozen=True, slots=True)
class Agent:
    """What turns are run with; made by `create_agent`.

    Attributes:
        features: What the agent can do, as it was when the agent was made.
        harness: Where adapters come from.
        catalogue: Tools that `features.bootstrap` names one of.
    """

    features: AgentFeatures
    harness: CliHarness
    catalogue: Mapping[str, Tool]

    @property
    def name(self) -> str:
        """The agent's native name."""
        return self.features.name

    def bind(self) -> AgentAdapter:
        """Return the adapter of a turn."""
        return self.harness.bind()


def create_agent(harness: CliHarness, *, catalogue: Mapping[str, Tool] = CATALOGUE) -> Agent:
    """Bind an adapter to look at its features, and return the agent.

    Args:
        harness: What the agent is.
        catalogue: Tools that can be installed in a sandbox.

    Raises:
        ConfigurationError: `invalid_argument`: a feature that cannot be; `unknown_agent`: `bootstrap` names no tool.
    """
    adapter: object = harness.bind()
    if not isinstance(adapter, AgentAdapter):
        raise _refuse(f"bind returned {type(adapter).__name__}, not an AgentAdapter")
    name: object = getattr(adapter, "name", None)
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > _MAX_NAME_CHARS:
        raise _refuse(f"an agent's name is text of 1 to {_MAX_NAME_CHARS} printable characters", hint="set name")
    _check_usage(adapter)
    _check_variables(adapter)
    if adapter.capture and adapter.storage is None:
        raise _refuse(f"{name} is to capture its conversations and has no storage", hint="set storage")
    if adapter.bootstrap is not None:
        check_tool(adapter.bootstrap, catalogue)
    return Agent(adapter, harness, catalogue)


def _check_usage(adapter: AgentAdapter) -> None:
    modes = get_args(UsageMode)
    if adapter.usage is not None and adapter.usage not in modes:
        raise _refuse(f"{adapter.name} has a usage that is none of {', '.join(modes)}")
    if adapter.usage == "session" and type(adapter).usage_command is AgentAdapter.usage_command:
        raise _refuse(f"{adapter.name} counts tokens by its session and has no usage_command", hint="define both hooks")


def _check_variables(adapter: AgentAdapter) -> None:
    for variable, value in cast("Mapping[object, object]", adapter.variables).items():
        if not isinstance(variable, str) or not VARIABLE.fullmatch(variable):
            raise _refuse(f"{adapter.name} sets '{printable(str(variable))[:80]}', which is no name of a variable")
        if not isinstance(value, str) or "\0" in value:
            raise _refuse(f"{adapter.name} sets {variable} to something that is no value of a variable")


def _refuse(message: str, *, hint: str = "") -> ConfigurationError:
    return ConfigurationError("invalid_argument", message, hint=hint)
