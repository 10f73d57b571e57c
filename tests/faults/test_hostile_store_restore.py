"""A daemon that lies while a store restores transcripts: it gets the conversation's own bytes and changes no file."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents import claude
from host_client.errors import OutpostError
from host_client.stores.transcript import TranscriptConversations
from sandbox_api.v1 import transcript_pb2
from support.hostile_host import ID, LINE, OTHER, Host, tree
from support.lie import HANG_SECONDS
from support.lying_home import LyingHome, lying_home

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.fake_daemon import Exchange

    Answer = transcript_pb2.TranscriptRestoreResponse

pytestmark = pytest.mark.anyio

SECRETS = (b"secret", b"mine", b"the other's", b"# Other")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Give a host that has the conversation, too."""
    host = Host(tmp_path)
    host.write(f"{host.key}/{ID}.jsonl", LINE * 3)
    host.write(f"{host.key}/{ID}/subagents/agent-a.jsonl", LINE)
    host.write(f"{host.key}/{ID}/tool-results/a.txt", b"a result")
    return host


class Greedy(LyingHome):
    """A sandbox that keeps all that it is sent."""

    def __init__(self, *answers: transcript_pb2.TranscriptRestoreResponse | bytes) -> None:
        super().__init__({}, b"/home/agent/.claude")
        self.got = b""
        self.answers = answers
        self.scripts = {"TranscriptService_Restore": self.restore}

    async def restore(self, exchange: Exchange) -> None:
        """Take everything, then answer."""
        while (message := await exchange.receive()) is not None:
            self.got += message
            if transcript_pb2.TranscriptRestoreRequest.FromString(message).WhichOneof("part") == "commit":
                break
        await exchange.send(*self.answers)


async def restore(host: Host, lies: LyingHome, *, before: Callable[[], object] = lambda: None) -> str:
    """Restore what is located; return the reason of the failure, or nothing."""
    store = TranscriptConversations(claude.LAYOUT)
    async with asyncio.timeout(HANG_SECONDS), lying_home(lies) as sandbox:
        context = host.context(sandbox)
        try:
            record = await store.locate(ID, context)
            before()
            await store.restore(record, context)
        except OutpostError as error:
            return f"{error.code}/{error.reason}"
    return ""


def result(**fields: Any) -> transcript_pb2.TranscriptRestoreResponse:
    """Return a result."""
    return transcript_pb2.TranscriptRestoreResponse(**fields)


MAIN = f"projects/{claude.project_key('/workspace')}/{ID}.jsonl".encode()


async def test_links_beside_a_transcript_are_never_sent(host: Host) -> None:
    """Whoever plants links where the conversation's files lie, on any level, gets nothing of what they lead to."""
    folder = host.home / host.key / ID
    (folder / "tool-results/b.txt").symlink_to(host.home / ".ssh/authorized_keys")
    (folder / "tool-results/c.txt").symlink_to("../../../../.credentials.json")
    (folder / "subagents/agent-b.jsonl").symlink_to(host.home / host.key / f"{OTHER}.jsonl")
    (folder / "deep").symlink_to(host.home / ".ssh")
    (host.home / f".claude/todos/{ID}-agent.json").symlink_to(host.home / ".claude/.credentials.json")
    os.mkfifo(folder / "tool-results/d.txt")
    os.link(host.home / host.key / f"{ID}.jsonl", folder / "tool-results/e.txt")
    before = tree(host.root)
    lies = Greedy(result(added=[MAIN]))
    assert await restore(host, lies) == ""
    assert lies.got.count(LINE * 3) == 2  # the transcript, and the second name that it has
    assert not any(secret in lies.got for secret in SECRETS)
    assert tree(host.root) == before


async def test_folder_that_is_a_link_is_refused(host: Host) -> None:
    """A folder of the conversation that is a link to another one's gives nothing of that one."""
    (host.home / ".claude/file-history").mkdir()
    (host.home / f".claude/file-history/{ID}").symlink_to(host.home / host.key / OTHER)
    lies = Greedy(result(added=[MAIN]))
    assert await restore(host, lies) == "workspace/unsafe_path"
    assert lies.got == b""


@pytest.mark.parametrize("name", ["tool-results/a.txt", "subagents/agent-a.jsonl", "tool-results"])
async def test_file_that_becomes_a_link_meanwhile_is_not_sent(host: Host, name: str) -> None:
    """A companion that was a file when the conversation was located, and is a link when it is sent, fails."""
    path = host.home / host.key / ID / name

    def swap(_directory: str, _pattern: str) -> list[bytes]:  # when copies are looked for, all files have been named
        path.rename(path.with_name("gone"))
        path.symlink_to(host.home / (".ssh" if path.with_name("gone").is_dir() else ".claude/.credentials.json"))
        return []

    lies = Greedy(result(added=[MAIN]))
    lies.planted = swap
    assert await restore(host, lies) in ("workspace/unsafe_path", "session/digest_mismatch", "workspace/not_found")
    assert not any(secret in lies.got for secret in SECRETS)


async def test_transcript_that_becomes_a_link_is_refused(host: Host) -> None:
    """A record of a file that is a link by now restores nothing."""
    path = host.home / host.key / f"{ID}.jsonl"

    def swap() -> None:
        path.unlink()
        path.symlink_to(host.home / ".claude/.credentials.json")

    lies = Greedy(result(added=[MAIN]))
    assert await restore(host, lies, before=swap) == "workspace/unsafe_path"
    assert lies.got == b""


RESULTS: dict[str, tuple[transcript_pb2.TranscriptRestoreResponse | bytes, ...]] = {
    "none": (),
    "two": (result(added=[MAIN]), result(added=[MAIN])),
    "no message": (b"\xff\xff",),
    "a step up": (result(added=[b"../x"]),),
    "an absolute path": (result(replaced=[b"/etc/passwd"]),),
    "the same twice": (result(added=[MAIN, MAIN]),),
    "a name of recovery that is a path": (result(recovery="../../x", replaced=[MAIN]),),
    "recovery of another": (result(recovery=f"{OTHER}-u", replaced=[MAIN]),),
}


@pytest.mark.parametrize("case", RESULTS)
async def test_result_that_lies_is_no_success(host: Host, case: str) -> None:
    """What a daemon answers to a commit is checked before it is told, and the host's files are as before."""
    before = tree(host.root)
    expected = "session/protocol" if RESULTS[case] else "unavailable/unreachable"
    assert await restore(host, Greedy(*RESULTS[case])) == expected
    assert tree(host.root) == before


@pytest.mark.parametrize("home", [b"/", b"/etc", b"", b"relative", b"/a/../b", b"/a\0b"])
async def test_home_that_lies_changes_nothing_here(host: Host, home: bytes) -> None:
    """Wherever the daemon says that its home is, the host's files are only read."""
    before = tree(host.root)
    lies = Greedy(result(added=[MAIN]))
    lies.home = home
    expected = "" if home in (b"/", b"/etc") else "session/protocol"
    assert await restore(host, lies) == expected
    assert not any(secret in lies.got for secret in SECRETS)
    assert tree(host.root) == before


async def test_copies_that_the_daemon_invents_refuse_the_restore(host: Host) -> None:
    """A daemon that names other transcripts of the id keeps its own sandbox from the restore, and that is all."""
    before = tree(host.root)
    lies = Greedy(result(added=[MAIN]))
    lies.planted = lambda _directory, _pattern: [b"/home/agent/.claude/projects/x/%b.jsonl" % ID.encode()]
    assert await restore(host, lies) == "conflict/other_bucket"
    assert (lies.got, tree(host.root)) == (b"", before)
