"""What is found out on the host before a turn asks for a sandbox.

The one rule: a turn that cannot work is refused here, when nothing was allocated yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.errors import ConfigurationError, SessionError, WorkspaceError, printable
from host_client.sandbox.task import in_thread
from host_client.stores.archive import TransportConversations
from host_client.turns.environment import repository_variables
from sandbox_api.names import check_conversation_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from host_client.agents.adapter import AgentFeatures, Continuation
    from host_client.stores.contract import ConversationRecord, ConversationStore
    from host_client.turns.known import LastTurn
    from host_client.turns.options import TurnOptions


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a turn starts with.

    Attributes:
        variables: Environment that the repository sets.
        kept: The conversation as the host has it; None: there is none to go on with, or the host has not got it.
        missing: Why a conversation that is known to be in a sandbox cannot be brought to another one.
    """

    variables: Mapping[str, str]
    kept: ConversationRecord | None = None
    missing: ConfigurationError | SessionError | None = None


async def prepare(
    features: AgentFeatures,
    options: TurnOptions,
    text: str,
    continuation: Continuation | None,
    last_turn: LastTurn | None,
) -> Prepared:
    """Refuse what cannot work, and read what the host has.

    Args:
        features: What the agent can do.
        options: The runner's.
        text: What the user says.
        continuation: What the turn goes on with.
        last_turn: Where that was worked on last, as far as the runner knows.

    Raises:
        ConfigurationError: `invalid_argument`: the text; a file of variables; nowhere to keep the conversation.
            `invalid_id`. `not_supported`: the agent cannot resume, or not fork, or it has no storage and the
            conversation is in no sandbox that the runner knows; the id is that of an archive's fork.
        SessionError: `not_found`: neither the host nor a sandbox that the runner knows has the conversation; other
            reasons of the store's `locate`.
        WorkspaceError: `not_found`: the directory that keeps conversations; about a file of variables.
    """
    _check_text(text)
    if continuation is not None:
        check_conversation_id(continuation.id)
        _check_able(features, continuation)
    storage = features.storage
    if storage is not None and (continuation is not None or features.capture is not False):
        await in_thread(_check_place, storage, options)
    variables = await in_thread(repository_variables, options.repository)
    if continuation is None:
        return Prepared(variables)
    try:
        return Prepared(variables, kept=await _located(features, options, continuation.id))
    except (ConfigurationError, SessionError) as error:
        # In the sandbox that it was last worked on in, the conversation goes on without the host's copy.
        if last_turn is None or error.reason not in ("not_found", "not_supported"):
            raise
        return Prepared(variables, missing=error)


def _check_text(text: str) -> None:
    if not text.strip():
        raise ConfigurationError("invalid_argument", "a turn has no text", hint="say what the agent is to do")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError("invalid_argument", "the text of a turn cannot be written as UTF-8") from None
    if "\0" in text:
        raise ConfigurationError("invalid_argument", "the text of a turn has a NUL character")


def _check_able(features: AgentFeatures, continuation: Continuation) -> None:
    if features.resumable is False:
        raise ConfigurationError("not_supported", f"{features.name} cannot go on with a conversation")
    if continuation.fork and features.forkable is False:
        raise ConfigurationError(
            "not_supported", f"{features.name} cannot fork a conversation", hint="resume it instead"
        )


def _check_place(storage: ConversationStore, options: TurnOptions) -> None:
    """Refuse now what would make the capture fail after the turn; blocks."""
    directory = getattr(storage, "directory", None)
    if directory is None or isinstance(storage, TransportConversations):
        return  # a store of one's own or an archive, which needs no place of ours
    directory(options.context())
    base = options.context().base
    if not base.is_dir():
        name = printable(str(base))
        raise WorkspaceError("not_found", f"no directory is at {name}, where conversations are to be kept")


async def _located(features: AgentFeatures, options: TurnOptions, conversation_id: str) -> ConversationRecord:
    if features.storage is None:
        raise ConfigurationError(
            "not_supported",
            f"{features.name} has no storage, so no other sandbox can go on with its conversations",
            hint="resume by the runner that ran the conversation, in the same sandbox, or give the agent a storage",
        )
    record = await features.storage.locate(conversation_id, options.context())
    if record.conversation_id != conversation_id:
        raise ConfigurationError(
            "not_supported",
            f"{conversation_id} is the fork of an archive, whose conversation its CLI knows as "
            f"{printable(record.conversation_id)}",
            hint="restore the fork into a sandbox yourself, and resume the conversation by the CLI's id there",
        )
    return record
