"""Claude's conversations of odd homes and workspaces: whose they are, and that nothing else is touched."""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client.agents.claude import project_key
from host_client.agents.registry import builtin_format
from host_client.errors import ConflictError, SessionError
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.stores.context import ConversationContext
from support.conversation import files_below

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from host_client.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.anyio

S1, S2 = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "12")
STORE = builtin_format("claude")


def transcript(cwd: str, count: int = 2) -> bytes:
    """Return a conversation held in a directory, with a line of one below it."""
    told = [
        {"type": "mode"},
        *({"type": "user", "cwd": cwd, "n": number} for number in range(count)),
        {"type": "assistant", "cwd": f"{cwd}/sub", "text": f"in {cwd}"},
    ]
    return b"".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for line in told)


def write(home: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a home."""
    for path, data in files.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(data)


def main_path(workspace: Path, wanted: str = S1) -> str:
    """Return where the CLI keeps a conversation held in a directory."""
    return f".claude/projects/{project_key(str(workspace))}/{wanted}.jsonl"


@asynccontextmanager
async def sandbox_of(home: Path, workspace: Path) -> AsyncIterator[Sandbox]:
    """Serve a home and a workspace, made where missing."""
    for path in (home, workspace):
        path.mkdir(parents=True, exist_ok=True)
    async with connect(LocalTarget(home, workspace)) as sandbox:
        yield sandbox


def context_of(tmp_path: Path, sandbox: Sandbox | None = None) -> ConversationContext:
    """Return a context that keeps copies in `kept`."""
    (tmp_path / "kept").mkdir(exist_ok=True)
    return ConversationContext(sandbox=sandbox, conversation_home=tmp_path / "kept")


async def test_another_workspace_gets_its_own_key_and_directory(tmp_path: Path) -> None:
    """The transcript goes to the folder of the new directory; what equals the old one moves, what lies below stays."""
    old, new = tmp_path / "a/p", tmp_path / "b/p_q.r"
    write(tmp_path / "home a", {main_path(old): transcript(str(old))})
    async with sandbox_of(tmp_path / "home a", old) as source, sandbox_of(tmp_path / "home b", new) as target:
        context = context_of(tmp_path)
        record = await STORE.capture(S1, replace(context, sandbox=source))
        await STORE.restore(record, replace(context, sandbox=target))
    placed = files_below(tmp_path / "home b/.claude/projects")
    expected = transcript(str(old)).replace(f'"cwd":"{old}"'.encode(), f'"cwd":"{new}"'.encode())
    assert placed == {f"{project_key(str(new))}/{S1}.jsonl": expected}
    assert b"/a/p/sub" in expected


async def test_two_workspaces_with_one_key_stay_apart(tmp_path: Path) -> None:
    """Directories whose names make the same key share a folder; each conversation keeps its own directory."""
    first, second = tmp_path / "Проект", tmp_path / "Привет"
    assert project_key(str(first)) == project_key(str(second))
    home = tmp_path / "home"
    write(home, {main_path(first): transcript(str(first)), main_path(second, S2): transcript(str(second))})
    async with sandbox_of(home, first) as source, sandbox_of(tmp_path / "b", tmp_path / "w") as target:
        context = context_of(tmp_path)
        listed = [item.conversation_id async for item in STORE.list_sessions(replace(context, sandbox=source))]
        assert listed == [S1, S2]
        record = await STORE.capture(S1, replace(context, sandbox=source))
        assert record.files_count == 1
        other = await STORE.capture(S2, replace(context, sandbox=source))
        await STORE.restore(record, replace(context, sandbox=target))
        assert {item.conversation_id async for item in STORE.list_sessions(replace(context, sandbox=target))} == {S1}
        await STORE.restore(other, replace(context, sandbox=target))
    placed = files_below(tmp_path / "b/.claude/projects" / project_key(str(tmp_path / "w")))
    for wanted, name in ((S1, first), (S2, second)):
        assert f'"cwd":"{tmp_path / "w"}"'.encode() in placed[f"{wanted}.jsonl"]
        assert f"in {name}".encode() in placed[f"{wanted}.jsonl"]


async def test_a_workspace_behind_a_link_is_known_by_its_real_path(tmp_path: Path) -> None:
    """The CLI resolves its directory; a conversation recorded under the name of the link is found all the same."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to("real")
    write(tmp_path / "home", {main_path(link): transcript(str(link))})
    async with sandbox_of(tmp_path / "home", link) as source, sandbox_of(tmp_path / "b", link) as target:
        context = context_of(tmp_path)
        record = await STORE.capture(S1, replace(context, sandbox=source))
        assert str(record.source).endswith(main_path(link))
        outcome = await STORE.restore(record, replace(context, sandbox=target))
        assert str(outcome.target).endswith(main_path(real))
    write(tmp_path / "home", {main_path(real): transcript(str(real))})
    async with sandbox_of(tmp_path / "home", link) as source:
        own = await STORE.capture(S1, replace(context, sandbox=source))
    assert str(own.source).endswith(main_path(real))
    told = [notice for notice in own.notices if notice.reason == "other_copy"]
    assert [notice.path for notice in told] == [main_path(link).removeprefix(".claude/")]


async def test_the_home_that_a_variable_names_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`CLAUDE_CONFIG_DIR` of the sandbox leads there, that of the host here; decoys in both homes stay as they are."""
    workspace = tmp_path / "w"
    moved = workspace / "state"
    decoy = {main_path(workspace): transcript("/decoy")}
    write(tmp_path / "home", decoy)
    write(tmp_path / "user", decoy)
    write(workspace, {main_path(workspace).replace(".claude", "state", 1): transcript(str(workspace))})
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    repository = tmp_path / "repo"
    repository.mkdir()
    async with sandbox_of(tmp_path / "home", workspace) as sandbox:
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "ours"))
        context = ConversationContext(
            sandbox=sandbox, repository=repository, variables={"CLAUDE_CONFIG_DIR": str(moved)}
        )
        record = await STORE.capture(S1, context)
    assert record.path == tmp_path / "ours/projects" / project_key(str(repository)) / f"{S1}.jsonl"
    assert str(record.source).startswith(str(moved))
    assert files_below(tmp_path / "home/.claude") == files_below(tmp_path / "user/.claude")
    assert b"/decoy" in next(iter(files_below(tmp_path / "user/.claude").values()))


async def test_one_id_in_two_projects_is_no_guess(tmp_path: Path) -> None:
    """From a third workspace both are named with size and time; from one of theirs its own is taken."""
    p, q = tmp_path / "p", tmp_path / "q"
    home = tmp_path / "home"
    write(home, {main_path(p): transcript(str(p), 10), main_path(q): transcript(str(q), 12)})
    async with sandbox_of(home, tmp_path / "elsewhere") as sandbox:
        with pytest.raises(SessionError) as caught:
            await STORE.capture(S1, context_of(tmp_path, sandbox))
    assert caught.value.reason == "ambiguous"
    told = {offender.path: offender.problem for offender in caught.value.offenders}
    for workspace, count in ((p, 10), (q, 12)):
        assert told[str(home / main_path(workspace))].startswith(f"{len(transcript(str(workspace), count))} bytes")
    async with sandbox_of(home, q) as sandbox:
        record = await STORE.capture(S1, context_of(tmp_path, sandbox))
        assert str(record.source) == str(home / main_path(q))
        with pytest.raises(ConflictError) as refused:
            await STORE.restore(record, context_of(tmp_path, sandbox))
        assert refused.value.reason == "other_bucket"


async def test_all_that_belongs_comes_and_no_secret_does(tmp_path: Path) -> None:
    """Children and large results move; the registry, its keys and the credentials never do, and are named."""
    workspace = tmp_path / "w"
    beside = main_path(workspace).removesuffix(".jsonl")
    belongs = {
        main_path(workspace): transcript(str(workspace)),
        f"{beside}/subagents/agent-x.jsonl": transcript(str(workspace)),
        f"{beside}/subagents/agent-x.meta.json": b"{}",
        f"{beside}/tool-results/t.txt": b"\0large",
    }
    secret = {
        ".claude/.credentials.json": b"secret",
        ".claude/sessions/4194305.json": json.dumps({"sessionId": S1}).encode(),
        ".claude/sessions/4194305.abc.key": b"secret",
        ".claude.json": b"secret",
    }
    write(tmp_path / "home", {**belongs, **secret})
    os.link(tmp_path / "home" / beside / "tool-results/t.txt", tmp_path / "second name")
    async with sandbox_of(tmp_path / "home", workspace) as source, sandbox_of(tmp_path / "b", workspace) as target:
        context = context_of(tmp_path)
        record = await STORE.capture(S1, replace(context, sandbox=source))
        outcome = await STORE.restore(record, replace(context, sandbox=target))
    assert record.files_count == outcome.files_count == len(belongs)
    left_out = {item.path for item in record.left_out}
    assert {".credentials.json", "sessions/4194305.json"} <= left_out
    assert {path: data for path, data in files_below(tmp_path / "b").items() if ".outpost" not in path} == belongs
    kept = b"".join(files_below(tmp_path / "kept").values())
    assert b"secret" not in kept


async def test_a_home_that_is_a_link_is_named_and_refused(tmp_path: Path) -> None:
    """Without consent nothing is captured through it; with it the source told is the resolved path."""
    workspace = tmp_path / "w"
    write(tmp_path / "home/dotfiles", {main_path(workspace).removeprefix(".claude/"): transcript(str(workspace))})
    (tmp_path / "home/.claude").symlink_to("dotfiles")
    async with sandbox_of(tmp_path / "home", workspace) as sandbox:
        context = context_of(tmp_path, sandbox)
        with pytest.raises(SessionError) as caught:
            await STORE.capture(S1, context)
        assert caught.value.reason == "root_symlink"
        record = await STORE.capture(S1, replace(context, follow_root_link=True))
    assert str(record.source).startswith(str(tmp_path / "home/dotfiles/projects"))
