"""The messages of a call about the files of a conversation, to what the core takes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sandbox_agent.core.file_set import FileSetPlace
from sandbox_agent.core.file_set_record import FileSetRecord
from sandbox_agent.services.backlog import Backlog
from sandbox_api.errors import ConfigurationError, printable
from sandbox_api.framing import PayloadCheck
from sandbox_api.names import KEY_SEGMENT, check_conversation_id, check_restore_id
from sandbox_api.wire import unpack_locks

if TYPE_CHECKING:
    from sandbox_agent.core.file_set import FileSet
    from sandbox_agent.services.incoming import Incoming
    from sandbox_agent.services.worker import Worker
    from sandbox_api.v1 import transcript_pb2

    One = transcript_pb2.TranscriptRestoreHeader | transcript_pb2.TranscriptUndoRequest
    All = transcript_pb2.TranscriptRecoveryRequest | transcript_pb2.TranscriptPruneRequest


def place_of_one(message: One) -> FileSetPlace:
    """Return the checked place of one conversation.

    Raises:
        ConfigurationError: `invalid_id`, `invalid_argument`.
    """
    return FileSetPlace(
        message.home,
        _check_format(message.format),
        check_conversation_id(message.id),
        unpack_locks(message.locks),
        force=message.force,
    )


def record_of_staged(message: transcript_pb2.TranscriptStagedRequest) -> FileSetRecord:
    """Return the checked record of a restore whose staged files are asked for.

    Raises:
        ConfigurationError: `invalid_id`, `invalid_argument`.
    """
    conversation_id = check_conversation_id(message.id)
    if not message.restore_id:
        raise ConfigurationError("invalid_argument", "nothing waits of a restore without an id")
    restore_id = check_restore_id(message.restore_id)
    return FileSetRecord(message.home, _check_format(message.format), conversation_id, "", restore_id=restore_id)


def place_of_any(message: All) -> FileSetPlace:
    """Return the checked place of one conversation, or of all of a format.

    Raises:
        ConfigurationError: `invalid_id`, `invalid_argument`.
    """
    conversation_id = check_conversation_id(message.id) if message.id else ""
    return FileSetPlace(message.home, _check_format(message.format), conversation_id)


async def receive_files(incoming: Incoming, worker: Worker, files: FileSet) -> Any:
    """Receive all files and return the commit; what has arrived is written while more is on its way.

    Raises:
        SessionError: `protocol`, `incomplete`, and what `FileSet` raises.
    """
    with Backlog(worker) as backlog:
        part, message = await incoming.part("file", "commit")
        while part == "file":
            begin = partial(
                files.begin_file,
                message.path,
                message.mode,
                append_lines=message.append_lines,
                from_offset=message.from_offset,
                prefix_sha256=message.prefix_sha256,
                placed_last=message.placed_last,
            )
            await backlog.add(begin, len(message.path))
            check = PayloadCheck(from_offset=message.from_offset)
            part, message = await incoming.part("chunk", "trailer")
            while part == "chunk":
                data = check.accept(message.offset, message.data)
                await backlog.add(partial(files.feed, data), len(data))
                part, message = await incoming.part("chunk", "trailer")
            check.finish(message.size)
            await backlog.add(partial(files.end_file, message.sha256))
            part, message = await incoming.part("file", "commit")
        await incoming.end()
        await backlog.finish()
    return message


def _check_format(name: str) -> str:
    if not KEY_SEGMENT.fullmatch(name):
        raise ConfigurationError("invalid_argument", f"'{printable(name[:140])}' is not a format name")
    return name
