"""An agent: an adapter's class made usable, with its features checked once.

The one rule: what is wrong with an agent is said when it is made, before a sandbox is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from host_client.agents.adapter import AgentAdapter, UsageMode
from host_client.agents.catalogue import CATALOGUE, check_tool
from host_client.errors import ConfigurationError, printable
from sandbox_api.names import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from host_client.agents.adapter import AgentFeatures
    from host_client.agents.tool import Tool

_MAX_NAME_CHARS = 64
_STORE_METHODS = ("locate", "capture", "restore")


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
    _check_switches(adapter)
    _check_usage(adapter)
    _check_variables(adapter)
    _check_storage(adapter)
    if adapter.capture and adapter.storage is None:
        raise _refuse(f"{name} is to capture its conversations and has no storage", hint="set storage")
    tool: object = adapter.bootstrap
    if tool is not None:
        if not isinstance(tool, str):
            raise _refuse(f"{name} has a bootstrap that is no name of a tool")
        check_tool(tool, catalogue)
    return Agent(adapter, harness, catalogue)


def _check_switches(adapter: AgentAdapter) -> None:
    for feature in ("requires_finished_event", "capture", "resumable", "forkable"):
        value: object = getattr(adapter, feature)
        if not isinstance(value, bool) and (value is not None or feature == "requires_finished_event"):
            raise _refuse(f"{adapter.name} has a {feature} that is neither true nor false")


def _check_storage(adapter: AgentAdapter) -> None:
    storage: object = adapter.storage
    if storage is not None and not all(callable(getattr(storage, method, None)) for method in _STORE_METHODS):
        raise _refuse(
            f"{adapter.name} has a storage that is no store of conversations",
            hint=f"a store has the methods {', '.join(_STORE_METHODS)}",
        )


def _check_usage(adapter: AgentAdapter) -> None:
    modes = get_args(UsageMode)
    if adapter.usage is not None and adapter.usage not in modes:
        raise _refuse(f"{adapter.name} has a usage that is none of {', '.join(modes)}")
    if adapter.usage == "session" and type(adapter).usage_command is AgentAdapter.usage_command:
        raise _refuse(f"{adapter.name} counts tokens by its session and has no usage_command", hint="define both hooks")


def _check_variables(adapter: AgentAdapter) -> None:
    variables: object = adapter.variables
    if not isinstance(variables, Mapping):
        raise _refuse(f"{adapter.name} has variables that are no mapping")
    for variable, value in variables.items():
        if not isinstance(variable, str) or not VARIABLE.fullmatch(variable):
            raise _refuse(f"{adapter.name} sets '{printable(str(variable))[:80]}', which is no name of a variable")
        if not isinstance(value, str) or "\0" in value:
            raise _refuse(f"{adapter.name} sets {variable} to something that is no value of a variable")


def _refuse(message: str, *, hint: str = "") -> ConfigurationError:
    return ConfigurationError("invalid_argument", message, hint=hint)
