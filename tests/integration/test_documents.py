"""What the documents show works as it stands there."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import host_client
from host_client import ConflictError, ConversationContext, connect, sync
from support.conversation import files_below
from support.daemon import running_daemon
from support.recorded import DATA, recording

if TYPE_CHECKING:
    from host_client import SessionBundleConversations, TranscriptConversations

ROOT = Path(__file__).parents[2]


def _blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def _example(document: str, tmp_path: Path, number: int = 0) -> Any:
    """Run one of the document's Python blocks as a module of its own, so that hooks have source; return its store."""
    block = _blocks(document)[number]
    module = tmp_path / "example.py"
    module.write_text(block)
    namespace: dict[str, object] = {"__name__": "example", "__file__": str(module)}
    exec(compile(block, str(module), "exec"), namespace)  # noqa: S102 - our own document
    return namespace["store"]


@pytest.mark.anyio
async def test_the_profile_of_the_guide_moves_a_session(tmp_path: Path) -> None:
    """docs/profiles.md: the session arrives with the new cwd, without its lock file."""
    store: SessionBundleConversations = _example("docs/profiles.md", tmp_path)
    session = tmp_path / "a/.mycli/sessions/s-1"
    (session / "files").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (session / "session.json").write_text('{"id": "s-1", "cwd": "/old"}')
    (session / "events.jsonl").write_text('{"text": "hi"}\n')
    (session / "files/notes.md").write_text("notes")
    (session / "run.lock").touch()
    async with connect(f"local:{tmp_path / 'a'}") as a, connect(f"local:{tmp_path / 'b'}") as b:
        record = await store.capture("s-1", ConversationContext(sandbox=a, conversation_home=tmp_path))
        await store.restore(record, ConversationContext(sandbox=b, conversation_home=tmp_path))
    placed = tmp_path / "b/.mycli/sessions/s-1"
    assert sorted(str(path.relative_to(placed)) for path in placed.rglob("*")) == [
        "events.jsonl",
        "files",
        "files/notes.md",
        "session.json",
    ]
    assert (placed / "session.json").read_text() == f'{{"id": "s-1", "cwd": "{tmp_path / "b"}"}}'


@pytest.mark.anyio
@pytest.mark.parametrize("number", [0, 1], ids=["alone", "with other files"])
async def test_the_layouts_of_the_guide_move_a_conversation(tmp_path: Path, number: int) -> None:
    """docs/formats.md: lines are relocated, related files arrive with their conversation alone, the token does not."""
    store: TranscriptConversations = _example("docs/formats.md", tmp_path, number)
    line = '{"cwd": "/old", "note": "plan", "text": "in /old"}\n'
    files = {
        "sessions/s-1.jsonl": line,
        "sessions/s-1/large.txt": "/old",
        "sessions/s-2.jsonl": line,
        "sessions/s-2/large.txt": "of the other",
        "notes/plan.md": "a plan",
        "notes/other.md": "of nobody",
        "titles.jsonl": '{"id": "s-2", "title": "b"}\n{"id": "s-1", "title": "a"}\n',
        "token": "secret",
    }
    for path, text in files.items():
        (tmp_path / "a/.mycli" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a/.mycli" / path).write_text(text)
    for name in ("b", "kept", "repository"):
        (tmp_path / name).mkdir()
    async with connect(f"local:{tmp_path / 'a'}") as a, connect(f"local:{tmp_path / 'b'}") as b:
        context = ConversationContext(conversation_home=tmp_path / "kept", repository=tmp_path / "repository")
        record = await store.capture("s-1", dataclasses.replace(context, sandbox=a))
        located = await store.locate("s-1", context)
        outcome = await store.restore(located, dataclasses.replace(context, sandbox=b))
        again = await store.restore(located, dataclasses.replace(context, sandbox=b))
    assert (located.digest, again.unchanged) == (record.digest, True)
    expected = {"sessions/s-1.jsonl"}
    if number:
        expected |= {"sessions/s-1/large.txt", "notes/plan.md", "titles.jsonl"}
        assert [(item.path, item.why) for item in record.left_out] == [("token", "credentials")]
    for kept, directory in (("kept", "repository"), ("b", "b")):
        found = files_below(tmp_path / kept / ".mycli")
        moved = line.replace('"cwd": "/old"', f'"cwd": "{tmp_path / directory}"')
        own = files | {"sessions/s-1.jsonl": moved, "titles.jsonl": '{"id": "s-1", "title": "a"}\n'}
        assert found == {path: own[path].encode() for path in expected}
    assert outcome.files_count == record.files_count == len(expected)


@pytest.mark.anyio
async def test_the_layout_of_the_guide_knows_an_open_conversation(tmp_path: Path) -> None:
    """docs/formats.md: while the process of its sign runs, a capture says `in_use`, and a restore is refused."""
    store: TranscriptConversations = _example("docs/formats.md", tmp_path, 1)
    home = tmp_path / "a/.mycli"
    (home / "sessions").mkdir(parents=True)
    (home / "running").mkdir()
    (tmp_path / "kept").mkdir()
    (home / "sessions/s-1.jsonl").write_text('{"cwd": "/old"}\n{"half')
    (home / f"running/s-1.{os.getpid()}").touch()
    async with connect(f"local:{tmp_path / 'a'}") as a:
        context = ConversationContext(sandbox=a, conversation_home=tmp_path / "kept")
        record = await store.capture("s-1", context)
        assert [notice.reason for notice in record.notices] == ["in_use"]
        assert not record.path.read_bytes().endswith(b"half")
        with pytest.raises(ConflictError) as caught:
            await store.restore(record, context)
    assert caught.value.reason == "in_use"


def test_the_archive_of_the_library_works(tmp_path: Path) -> None:
    """docs/library.md: captured into an encrypted archive, located and restored from there, told and verified."""
    (block,) = (block for block in _blocks("docs/library.md") if "TransportConversations(" in block)
    for name in ("b", "store", "cache"):
        (tmp_path / name).mkdir()
    shutil.copytree(DATA / "kimi/2.1.0/simple/home", tmp_path / "a")
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_text(host_client.ArchiveKey.generate().text)
    names: dict[str, Any] = {f"target_{name}": f"local:{tmp_path / name}" for name in "ab"}
    names |= {name: getattr(host_client, name) for name in ("ArchiveKey", "TransportConversations", "builtin_format")}
    names |= {"open_transport": host_client.open_transport, "sync": sync}
    names |= {"store_url": f"file://{tmp_path / 'store'}", "key_file": tmp_path / "key", "cache": tmp_path / "cache"}
    names |= {"conversation_id": recording("kimi", "2.1.0/simple").id}
    exec(block, names)  # noqa: S102 - our own document
    assert names["outcome"].target.is_relative_to(tmp_path / "b")
    assert [snapshot.digest for snapshot in names["snapshots"]] == [names["first"].digest]
    assert names["report"].is_whole


def test_the_example_of_the_library_works(tmp_path: Path) -> None:
    """docs/library.md: captured, restored, located, relayed and uploaded; the failure is the one told."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs/library.md").read_text(), re.DOTALL)
    assert found
    for name in ("b", "c", "repository"):
        (tmp_path / name).mkdir()
    shutil.copytree(DATA / "kimi/2.1.0/simple/home", tmp_path / "a")
    names: dict[str, Any] = {f"home_{name}": tmp_path / name for name in "abc"}
    names |= {"repository": tmp_path / "repository", "conversation_id": recording("kimi", "2.1.0/simple").id}
    exec(found[1], names)  # noqa: S102 - our own document
    assert names["outcome"].target.is_relative_to(tmp_path / "b")
    assert names["again"].unchanged
    assert [delivery.error for delivery in names["result"].outcomes] == [None, None]
    assert (tmp_path / "b/copy/.outpost/conversations/kimi").is_dir()
    assert names["reason"] == "not_found"


def test_the_example_of_redaction_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/redaction.md: every rule has its hit, and the kept copy has none of the secrets."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs/redaction.md").read_text(), re.DOTALL)
    assert found
    (tmp_path / "repository").mkdir()
    shutil.copytree(DATA / "kimi/2.1.0/simple/home", tmp_path / "a")
    recorded = recording("kimi", "2.1.0/simple")
    (wire,) = (tmp_path / "a").glob(f"**/{recorded.id}/agents/main/wire.jsonl")
    with wire.open("a") as file:
        file.write('{"out":"key \\u0061bc-123 bob@example.com db.internal"}\n')
    monkeypatch.setenv("API_KEY", "abc-123")
    names: dict[str, Any] = {"home": tmp_path / "a", "repository": tmp_path / "repository"}
    names["conversation_id"] = recorded.id
    exec(found[1], names)  # noqa: S102 - our own document
    assert names["counts"] == {"api-key": 1, "mail": 1, "host": 1}
    kept = {file["path"]: b64decode(file["data"]) for file in json.loads(names["record"].path.read_bytes())["files"]}
    line = kept["agents/main/wire.jsonl"].splitlines()[-1]
    assert line == b'{"out":"key [redacted:api-key] [redacted:mail] db.example"}'


def test_the_example_of_a_follow_works(tmp_path: Path) -> None:
    """docs/library.md: the conversation is on the host, and the capture behind the follow has nothing to bring."""
    shutil.copytree(DATA / "claude/2.1.332/multiturn/home", tmp_path / "a", copy_function=shutil.copyfile)
    (tmp_path / "b").mkdir()
    (transcript,) = (tmp_path / "a/.claude/projects").glob("*/*.jsonl")
    names: dict[str, Any] = {"target": f"local:{tmp_path / 'a'}", "home": tmp_path / "b", "is_over": lambda _: True}
    names |= {"conversation_id": transcript.stem, "sync": sync, "builtin_format": host_client.builtin_format}
    block = re.findall(r"```python\n(.*?)```", (ROOT / "docs/library.md").read_text(), re.DOTALL)[1]
    exec(block, names)  # noqa: S102 - our own document
    assert names["update"].record.path == names["record"].path
    assert names["record"].unchanged


def test_the_example_of_a_relay_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/library.md: both targets have it, each told with its own progress."""
    shutil.copytree(DATA / "claude/2.1.332/multiturn/home", tmp_path / "a", copy_function=shutil.copyfile)
    (transcript,) = (tmp_path / "a/.claude/projects").glob("*/*.jsonl")
    for name in "bc":
        (tmp_path / name).mkdir()
    (block,) = (block for block in _blocks("docs/library.md") if "target_progress" in block)
    targets = [f"local:{tmp_path / name}" for name in "bc"]
    names: dict[str, Any] = {"source": f"local:{tmp_path / 'a'}", "conversation_id": transcript.stem}
    names |= {"targets": targets, "sync": sync, "builtin_format": host_client.builtin_format}
    exec(block, names)  # noqa: S102 - our own document
    assert names["failed"] == []
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == set(targets)


def test_the_example_of_processes_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/library.md: run, read, written to, and ended from another connection."""
    with running_daemon(tmp_path) as daemon:
        (block,) = (block for block in _blocks("docs/library.md") if "sandbox.run(" in block)
        names: dict[str, Any] = {"target": daemon.target, "sync": sync}
        exec(block, names)  # noqa: S102 - our own document
        assert (daemon.workspace / ".git").is_dir()
    assert (names["status"], names["ended"].cause) == (b"a\nb\n", "signal")
    assert capsys.readouterr().out == "stdout 0 b'hello'\n"


def test_the_library_page_names_the_public_surface() -> None:
    """docs/library.md: every name that it shows as ours is exported, and every rule of a context is in it."""
    page = (ROOT / "docs/library.md").read_text()
    table = page[page.index("## Names") : page.index("## Failures")]
    for row in table.splitlines()[3:]:
        for name in re.findall(r"`([A-Za-z]+)(?=[(`])", row.split("|")[1] if "|" in row else ""):
            assert hasattr(host_client, name), name
    for field in dataclasses.fields(ConversationContext):
        assert f"`{field.name}`" in table


def test_the_demo_runs(tmp_path: Path) -> None:
    """`make demo`: all formats moved, digests equal, cwd relocated, a recovery made and undone."""
    ended = subprocess.run(
        [sys.executable, str(ROOT / "docs/demo.py")],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(": equal") == 4
    assert ended.stdout.count("cwd /home/dev/demo-app\n") == 4
    assert ended.stdout.count("workspace b\n") == 4
    assert ended.stdout.count("is back in") == 4
    assert list(tmp_path.iterdir()) == []
