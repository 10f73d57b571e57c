"""Show the messages of a conversation: as text, as one document, or as a page; for all commands that do.

The one rule: memory does not grow with the conversation, and a document or a page is written whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
from collections import Counter, deque
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from host_client.cli.conversation import message_document, message_lines
from host_client.cli.output import size
from host_client.cli.page import Heading, page_foot, page_head, page_message
from host_client.errors import WorkspaceError, printable
from host_client.sandbox.task import in_thread
from host_client.session.failure import host_failures

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
    from datetime import datetime

    from host_client.agents.message import Message
    from host_client.agents.message_reading import Messages
    from host_client.cli.conversation import Selection
    from host_client.cli.output import Output

_MEMORY_BYTES = 4 << 20
"""Of a document that is larger the rest waits in a file."""
_TOGETHER_BYTES = 256 << 10
_MAX_WIDTH_COUNT = 100
_STDOUT = "-"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a person wants to see of a conversation.

    Attributes:
        selection: Which parts of its messages.
        last_count: Only so many of the last messages; None: all.
        page: File to write a page to; `-`: standard output; empty: no page is wanted.
    """

    selection: Selection
    last_count: int | None
    page: str


async def show(messages: Messages, facts: Mapping[str, str], wanted: Wanted, output: Output) -> None:
    """Show messages as they are wanted.

    Args:
        messages: What to show.
        facts: What they are, by name: in the document's order, and in the page's heading.
        wanted: What is wanted of them.
        output: Where to.

    Raises:
        UsageError: a page and a document are both wanted on standard output.
        WorkspaceError: `not_found`, `not_a_file`, `access`: of the page's file.
        LimitError: `disk_full`, `read_only`.
        OutpostError: those of iterating the messages.
    """
    if wanted.page == _STDOUT and output.as_json:
        raise click.UsageError("a page and a document cannot both be printed: give --html a file, or leave --json away")
    if wanted.page:
        await _show_page(messages, facts, wanted, output)
    elif output.as_json:
        with tempfile.SpooledTemporaryFile(_MEMORY_BYTES) as spool:
            await _write(_document(messages, facts, wanted), spool.write)
            await _print_all(spool, output)
        return
    else:
        await _show_text(messages, wanted, output)
    if messages.skipped_count:
        output.note(f"note: {messages.skipped_count} line(s) are not shown: they are no records of a known kind")
    if messages.has_torn_tail:
        output.note("note: torn_tail: the last line is cut off")


async def _show_text(messages: Messages, wanted: Wanted, output: Output) -> None:
    width = min(shutil.get_terminal_size().columns, _MAX_WIDTH_COUNT) if sys.stdout.isatty() else None
    async with aclosing(_selected(messages, wanted)) as selected:
        async for _, message in selected:
            text = "\n".join(message_lines(message, width_count=width)) + "\n"
            output.raw(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))


async def _document(messages: Messages, facts: Mapping[str, str], wanted: Wanted) -> AsyncGenerator[str, None]:
    yield json.dumps(dict(facts)).removesuffix("}") + ', "messages": ['
    count = 0
    async with aclosing(_selected(messages, wanted)) as selected:
        async for _, message in selected:
            yield (", " if count else "") + json.dumps(message_document(message))
            count += 1
    told = {"skipped_lines": messages.skipped_count, "torn_tail": messages.has_torn_tail}
    yield "], " + json.dumps(told).removeprefix("{") + "\n"


async def _show_page(messages: Messages, facts: Mapping[str, str], wanted: Wanted, output: Output) -> None:
    heading = await _heading(messages, facts, wanted)
    page = _page(messages, heading, wanted)
    if wanted.page == _STDOUT:
        with tempfile.SpooledTemporaryFile(_MEMORY_BYTES) as spool:
            await _write(page, spool.write)
            await _print_all(spool, output)
        return
    host_path = await in_thread(Path(wanted.page).absolute)
    bytes_count = await _replace(host_path, page)
    count = sum(heading.counts.values())
    told = {"skipped_lines": messages.skipped_count, "torn_tail": messages.has_torn_tail}
    document = {**facts, "page": str(host_path), "message_count": count, "bytes": bytes_count, **told}
    output.result(document, [f"wrote {host_path}: {count} messages, {size(bytes_count)}"])


async def _heading(messages: Messages, facts: Mapping[str, str], wanted: Wanted) -> Heading:
    counts: Counter[str] = Counter()
    begin: datetime | None = None
    end: datetime | None = None
    async with aclosing(_selected(messages, wanted)) as selected:
        async for _, message in selected:
            counts[message.role] += 1
            begin, end = begin or message.time, message.time or end
    return Heading(f"Conversation {facts['id']}" if facts.get("id") else "Conversation", facts, begin, end, counts)


async def _page(messages: Messages, heading: Heading, wanted: Wanted) -> AsyncGenerator[str, None]:
    yield page_head(heading)
    async with aclosing(_selected(messages, wanted)) as selected:
        async for number, message in selected:
            yield page_message(message, number)
    skipped = f"{messages.skipped_count} line(s) of the transcript are not shown." if messages.skipped_count else ""
    yield page_foot(skipped + (" Its last line is cut off." if messages.has_torn_tail else ""))


async def _selected(messages: Messages, wanted: Wanted) -> AsyncGenerator[tuple[int, Message], None]:
    """Yield what is shown of the messages, each with its number."""
    last: deque[tuple[int, Message]] = deque(maxlen=wanted.last_count)
    number = 0
    async with aclosing(aiter(messages)) as found:
        async for message in found:
            if (shown := wanted.selection.of(message)) is None:
                continue
            number += 1
            if wanted.last_count is None:
                yield number, shown
            else:
                last.append((number, shown))
    for item in last:
        yield item


async def _write(pieces: AsyncIterator[str], write: Callable[[bytes], object]) -> int:
    """Write a text, and return its size in bytes."""
    held, held_bytes, bytes_count = [], 0, 0
    async for piece in pieces:
        data = piece.encode()
        held.append(data)
        held_bytes += len(data)
        bytes_count += len(data)
        if held_bytes >= _TOGETHER_BYTES:
            await in_thread(write, b"".join(held))
            held, held_bytes = [], 0
    await in_thread(write, b"".join(held))
    return bytes_count


async def _print_all(spool: IO[bytes], output: Output) -> None:
    await in_thread(spool.seek, 0)
    while data := await in_thread(spool.read, _TOGETHER_BYTES):
        output.raw(data)


def _check_replaceable(host_path: Path) -> None:
    """Refuse to put a file in the place of a link or a device: of /dev/null, say, for all of this host."""
    with host_failures(host_path):
        try:
            is_file = stat.S_ISREG(host_path.lstat().st_mode)
        except FileNotFoundError:
            return
    if not is_file:
        raise WorkspaceError(
            "not_a_file",
            f"no regular file is at {printable(str(host_path))}, so that no page can replace it",
            hint="name a file; `-` prints the page",
        )


async def _replace(host_path: Path, page: AsyncIterator[str]) -> int:
    """Write a file beside the one that it is to be, for nobody else to read, then give it its name."""

    def begin() -> tuple[IO[bytes], str]:
        _check_replaceable(host_path)
        with host_failures(host_path.parent):
            fd, draft = tempfile.mkstemp(prefix=".outpost-page-", dir=host_path.parent)
        return open(fd, "wb", buffering=0), draft  # noqa: PTH123 - pathlib opens no descriptor

    def finish(file: IO[bytes], draft: str) -> None:
        with host_failures(host_path):
            file.close()
            os.replace(draft, host_path)  # noqa: PTH105 - pathlib has the same, less plainly

    file, draft = await in_thread(begin)
    with file:

        def write(data: bytes) -> None:
            with host_failures(host_path):
                file.write(data)

        try:
            bytes_count = await _write(page, write)
            await in_thread(finish, file, draft)
        except BaseException:
            Path(draft).unlink(missing_ok=True)  # noqa: ASYNC240 - quick, and done even when all is cancelled
            raise
    return bytes_count
