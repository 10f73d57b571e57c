"""The host's side of transcripts: which home, which repository, and no link below."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from host_client.errors import ConfigurationError, SessionError, WorkspaceError
from host_client.session.compression import compressed
from host_client.stores.context import ConversationContext
from host_client.stores.transcript_home import FIRST_LINE_BYTES, HostFiles, HostHome
from support.transcript_format import IN_BUCKETS, LAYOUT

pytestmark = pytest.mark.anyio


def files_of(tmp_path: Path) -> HostFiles:
    """Return the files of a conversation home."""
    return HostFiles(HostHome.of(IN_BUCKETS, ConversationContext(conversation_home=tmp_path)))


def test_the_variable_of_our_own_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a conversation home the variable moves the CLI home, when it is an absolute path; a decoy is not used."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    context = ConversationContext(repository=tmp_path, variables={"MYCLI_HOME": "/of/the/sandbox"})
    assert HostHome.of(IN_BUCKETS, context).host_path == tmp_path / "user/.mycli"
    monkeypatch.setenv("MYCLI_HOME", str(tmp_path / "moved"))
    assert HostHome.of(IN_BUCKETS, context).host_path == tmp_path / "moved"
    monkeypatch.setenv("MYCLI_HOME", "relative")
    assert HostHome.of(IN_BUCKETS, context).host_path == tmp_path / "user/.mycli"


def test_a_home_is_made_but_not_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a variable names is made with all that leads there; the user's own home must be there."""
    monkeypatch.setenv("MYCLI_HOME", str(tmp_path / "x/y/z"))
    context = ConversationContext(repository=tmp_path)
    with HostHome.of(IN_BUCKETS, context).open(("sessions",), create=True) as folder:
        assert folder.host_path == tmp_path / "x/y/z/sessions"
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("MYCLI_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    with pytest.raises(WorkspaceError) as caught:
        HostHome.of(IN_BUCKETS, context).open(create=True)
    assert caught.value.reason == "not_found"


def test_a_conversation_home_stands_for_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With it no variable counts, and alone it is the repository, too."""
    monkeypatch.setenv("MYCLI_HOME", str(tmp_path / "moved"))
    home = HostHome.of(IN_BUCKETS, ConversationContext(conversation_home=tmp_path / "c"))
    assert (home.host_path, home.repository) == (tmp_path / "c/.mycli", tmp_path / "c")
    both = ConversationContext(conversation_home=tmp_path / "c", repository=tmp_path / "r")
    assert HostHome.of(IN_BUCKETS, both).repository == tmp_path / "r"
    assert HostHome.of(LAYOUT, both).host_path == tmp_path / "c"


def test_a_repository_is_known_by_its_resolved_path(tmp_path: Path) -> None:
    """A repository that is named through a link is the directory that a CLI started there calls its own."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    home = HostHome.of(IN_BUCKETS, ConversationContext(repository=tmp_path / "link", conversation_home=tmp_path))
    assert (home.repository, home.named_repository) == (tmp_path / "real", tmp_path / "link")


def test_a_context_that_names_nothing_is_refused() -> None:
    """There is no repository to relocate to."""
    with pytest.raises(ConfigurationError) as caught:
        HostHome.of(IN_BUCKETS, ConversationContext())
    assert caught.value.reason == "invalid_argument"


async def test_a_home_that_is_a_link_is_refused_unless_accepted(tmp_path: Path) -> None:
    """The CLI home itself may be a link only when the caller says so; links below it are refused all the same."""
    (tmp_path / "real/sessions").mkdir(parents=True)
    (tmp_path / "real/sessions/S1.jsonl").write_bytes(b"x\n")
    (tmp_path / ".mycli").symlink_to("real")
    context = ConversationContext(conversation_home=tmp_path)
    with pytest.raises(SessionError) as caught:
        HostHome.of(IN_BUCKETS, context)
    assert caught.value.reason == "root_symlink"
    files = HostFiles(HostHome.of(IN_BUCKETS, replace(context, follow_root_link=True)))
    assert await files.find(PurePosixPath("sessions")) == [PurePosixPath("sessions/S1.jsonl")]


async def test_no_link_below_the_home_is_followed(tmp_path: Path) -> None:
    """Linked files and folders are passed over when looked for, and refused when named."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.jsonl").write_bytes(b"canary\n")
    sessions = tmp_path / ".mycli/sessions"
    sessions.mkdir(parents=True)
    (sessions / "file.jsonl").symlink_to(outside / "secret.jsonl")
    (sessions / "folder").symlink_to(outside)
    os.mkfifo(sessions / "fifo.jsonl")
    files = files_of(tmp_path)
    assert await files.find(PurePosixPath()) == []
    assert not await files.exists(PurePosixPath("sessions/file.jsonl"))
    for path in ("sessions/file.jsonl", "sessions/folder/secret.jsonl"):
        with pytest.raises(WorkspaceError) as caught:
            await files.first_line(PurePosixPath(path))
        assert caught.value.reason == "unsafe_path"
    with pytest.raises(WorkspaceError) as special:
        await files.first_line(PurePosixPath("sessions/fifo.jsonl"))
    assert special.value.reason == "not_a_file"


async def test_files_are_found_by_name_and_content(tmp_path: Path) -> None:
    """At any depth, sorted, by a glob on the name and by what the first 64 KiB have; recovery is passed over."""
    home = tmp_path / ".mycli"
    for path, content in {
        "sessions/b/x.jsonl": b"one",
        "sessions/a.jsonl": b"two",
        "sessions/a.txt": b"one",
        "sessions/late.jsonl": bytes(64 << 10) + b"one",
        ".outpost-recovery/S1-u/sessions/b/x.jsonl": b"one",
    }.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(content)
    files = files_of(tmp_path)
    found = await files.find(PurePosixPath(), "*.jsonl")
    assert [str(path) for path in found] == ["sessions/a.jsonl", "sessions/b/x.jsonl", "sessions/late.jsonl"]
    assert await files.find(PurePosixPath("sessions"), "[xl]*.jsonl", contains=b"one") == [
        PurePosixPath("sessions/b/x.jsonl")
    ]
    assert await files.find(PurePosixPath("nowhere")) == []
    assert await files.exists(PurePosixPath("sessions/a.txt"))
    assert not await files.exists(PurePosixPath("sessions"))
    assert not await files.exists(PurePosixPath("sessions/a.txt/x"))


async def test_a_first_line_is_bounded_and_unpacked(tmp_path: Path) -> None:
    """Without its newline, at most 1 MiB of it, and of a compressed file that of its content."""
    home = tmp_path / ".mycli"
    home.mkdir()
    (home / "a.jsonl").write_bytes(b"first\nsecond\n")
    (home / "empty.jsonl").write_bytes(b"")
    (home / "long.jsonl").write_bytes(b"x" * (FIRST_LINE_BYTES + 10))
    (home / "a.jsonl.zst").write_bytes(b"".join(compressed([b"packed\n" * 9])))
    files = files_of(tmp_path)
    assert await files.first_line(PurePosixPath("a.jsonl")) == b"first"
    assert await files.first_line(PurePosixPath("empty.jsonl")) == b""
    assert len(await files.first_line(PurePosixPath("long.jsonl"))) == FIRST_LINE_BYTES
    assert await files.first_line(PurePosixPath("a.jsonl.zst")) == b"packed"
    with pytest.raises(WorkspaceError) as caught:
        await files.first_line(PurePosixPath("none.jsonl"))
    assert caught.value.reason == "not_found"
