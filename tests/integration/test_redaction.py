"""Redaction with real daemons: what is saved on the host holds no secret, whatever way it came."""

from __future__ import annotations

import json
import re
import tempfile
from base64 import b64decode
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError, LimitError, OutpostError, SessionError
from host_client.sandbox.sandbox import connect
from host_client.session.redacted_capture import RedactedCapture
from host_client.session.redaction import FunctionRule, LiteralRule, PatternRule, Redaction
from host_client.stores.context import ConversationContext
from host_client.stores.relay import relay
from sandbox_api.limits import Limits
from support.conversation import ID, files_below, make_session, store
from support.daemon import running_daemon

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

SECRET = 'sk-"live"/1234567890'  # noqa: S105 - made up
REDACTION = Redaction([LiteralRule("key", SECRET), PatternRule("mail", re.compile(r"\b[a-z]+@[a-z]+\.test"))])
ESCAPED = json.dumps({"out": json.dumps({"k": SECRET})}).replace("s", "\\u0073").encode()
FILES = {
    "files/log.jsonl": b'{"a": 1}\n' + ESCAPED + b"\ntorn " + SECRET.encode() + b"\n",
    "files/state.json": json.dumps({"deep": [{"k": SECRET, "ok": "bob@example.test"}]}, indent=2).encode(),
    "files/notes.md": f"key: {SECRET}\n".encode(),
    "files/clean.txt": b"nothing here\n",
}


def rules(directory: Path, redaction: Redaction | None = REDACTION) -> ConversationContext:
    """Return a context that keeps in a fresh repository and redacts."""
    directory.mkdir(exist_ok=True)
    return ConversationContext(repository=directory, durability="none", redaction=redaction)


def contents(host_path: Path) -> dict[str, bytes]:
    """Return what a saved bundle holds."""
    return {file["path"]: b64decode(file["data"]) for file in json.loads(host_path.read_bytes())["files"]}


async def test_a_saved_bundle_is_redacted(tmp_path: Path) -> None:
    """Lines, documents and text lose their secrets, other bytes stay; record and digest are of what is saved."""
    with running_daemon(tmp_path) as daemon:
        make_session(daemon.home / ".mycli", FILES)
        async with connect(daemon.target) as sandbox:
            record = await store().capture(ID, replace(rules(tmp_path / "r"), sandbox=sandbox))
        located = await store().locate(ID, rules(tmp_path / "r"))
    kept = contents(record.path)
    assert kept["files/clean.txt"] == FILES["files/clean.txt"]
    assert kept["files/notes.md"] == b"key: [redacted:key]\n"
    shown = json.dumps({"deep": [{"k": "[redacted:key]", "ok": "[redacted:mail]"}]}, indent=2)
    assert kept["files/state.json"] == shown.encode()
    first, second, third, _ = kept["files/log.jsonl"].split(b"\n")
    assert first == b'{"a": 1}'
    assert json.loads(json.loads(second)["out"]) == {"k": "[redacted:key]"}
    assert third == b"torn [redacted:key]"
    assert record.redactions == {"key": 4, "mail": 1}
    assert (located.digest, located.bytes_count) == (record.digest, record.bytes_count)
    assert record.bytes_count == sum(map(len, kept.values()))


async def test_a_later_capture_sends_only_what_redaction_changed(tmp_path: Path) -> None:
    """What redaction left as it was is not sent again; the file is untouched, and says so with the same counts."""
    big = b"x" * (1 << 20)
    with running_daemon(tmp_path) as daemon:
        make_session(daemon.home / ".mycli", {**FILES, "files/big.txt": big})
        async with connect(daemon.target) as sandbox:
            context = replace(rules(tmp_path / "r"), sandbox=sandbox)
            first = await store().capture(ID, context)
            before = first.path.stat()
            second = await store().capture(ID, context)
    assert first.received_bytes > len(big)
    assert sum(map(len, FILES.values())) - 100 < second.received_bytes < 4096
    assert second.unchanged
    assert (before.st_ino, before.st_mtime_ns) == (second.path.stat().st_ino, second.path.stat().st_mtime_ns)
    assert (second.digest, second.redactions) == (first.digest, first.redactions)


async def test_a_secret_that_is_completed_later_is_found(tmp_path: Path) -> None:
    """A grown file sends its tail only; a secret across the end of the held part is redacted all the same."""
    with running_daemon(tmp_path) as daemon:
        session = make_session(daemon.home / ".mycli", {"files/log.jsonl": b"x" * 100_000 + b" sk-"})
        async with connect(daemon.target) as sandbox:
            context = replace(rules(tmp_path / "r"), sandbox=sandbox)
            await store().capture(ID, context)
            with (session / "files/log.jsonl").open("ab") as log:
                log.write(SECRET.removeprefix("sk-").encode() + b" y\n")
            second = await store().capture(ID, context)
    assert second.received_bytes < 4096
    assert contents(second.path)["files/log.jsonl"] == b"x" * 100_000 + b" [redacted:key] y\n"


async def test_new_rules_hold_for_what_was_saved_before(tmp_path: Path) -> None:
    """A file saved without rules is redacted by the next capture with rules, though nothing of it is sent."""
    with running_daemon(tmp_path) as daemon:
        make_session(daemon.home / ".mycli", FILES)
        async with connect(daemon.target) as sandbox:
            plain = await store().capture(ID, replace(rules(tmp_path / "r", Redaction(())), sandbox=sandbox))
            assert contents(plain.path)["files/log.jsonl"] == FILES["files/log.jsonl"]
            redacted = await store().capture(ID, replace(rules(tmp_path / "r"), sandbox=sandbox))
    assert plain.redactions == {}
    assert redacted.received_bytes < 1024
    assert redacted.redactions == {"key": 4, "mail": 1}
    assert not redacted.unchanged
    assert SECRET.encode() not in b"".join(contents(redacted.path).values())


async def test_files_that_are_not_text_are_refused_all_by_name(tmp_path: Path) -> None:
    """`redaction_unsupported` names every one, sent or held; nothing is saved; `pass` keeps them as they are."""
    binary = {"files/a.bin": b"\xff\xfe", "files/b.db": b"a\0b", "files/c.txt": b"caf\xc3\xa9"}
    with running_daemon(tmp_path) as daemon:
        make_session(daemon.home / ".mycli", binary)
        async with connect(daemon.target) as sandbox:
            for held in (False, True):
                context = replace(rules(tmp_path / str(held)), sandbox=sandbox)
                if held:
                    await store().capture(ID, replace(context, redaction=None))
                before = files_below(tmp_path / str(held))
                with pytest.raises(SessionError) as caught:
                    await store().capture(ID, context)
                assert caught.value.reason == "redaction_unsupported"
                assert [offender.path for offender in caught.value.offenders] == ["files/a.bin", "files/b.db"]
                assert files_below(tmp_path / str(held)) == before
            passing = replace(context, redaction=replace(REDACTION, binary="pass"))
            record = await store().capture(ID, passing)
    kept = contents(record.path)
    assert {path: kept[path] for path in binary} == binary


async def test_a_name_with_a_secret_is_refused_and_not_shown(tmp_path: Path) -> None:
    """A path and an id with a hit cannot be changed: `redaction_unsupported`, with the hit redacted."""
    with running_daemon(tmp_path) as daemon:
        make_session(daemon.home / ".mycli", {"files/bob@example.test.txt": b"", "files/deep/hush-1": b""})
        make_session(daemon.home / ".mycli", {}, conversation_id="hush-1")
        redaction = Redaction([*REDACTION.rules, LiteralRule("word", "hush-1")])
        async with connect(daemon.target) as sandbox:
            context = replace(rules(tmp_path / "r", redaction), sandbox=sandbox)
            for conversation_id, names in (
                (ID, ["files/[redacted:mail].txt", "files/deep/[redacted:word]"]),
                ("hush-1", ["[redacted:word]"]),
            ):
                with pytest.raises(SessionError) as caught:
                    await store().capture(conversation_id, context)
                assert caught.value.reason == "redaction_unsupported"
                assert [offender.path for offender in caught.value.offenders] == names
                assert "hush" not in str(caught.value)
    assert files_below(tmp_path / "r") == {}


async def test_the_source_and_what_was_left_out_are_redacted(tmp_path: Path) -> None:
    """The sandbox's path in file and record, and names of left-out entries, show no secret."""
    with running_daemon(tmp_path) as daemon:
        session = make_session(daemon.home / ".mycli", {})
        (session / "hush-1.tmp").touch()
        redaction = Redaction([LiteralRule("home", daemon.home.name + "/.mycli"), LiteralRule("word", "hush-1")])
        async with connect(daemon.target) as sandbox:
            record = await store().capture(ID, replace(rules(tmp_path / "r", redaction), sandbox=sandbox))
    assert str(record.source) == f"{daemon.home.parent}/[redacted:home]/sessions/{ID}"
    assert json.loads(record.path.read_bytes())["source"] == str(record.source)
    assert [item.path for item in record.left_out] == ["[redacted:word].tmp"]


async def test_a_relay_and_an_adoption_redact(tmp_path: Path) -> None:
    """What reaches a relay's targets, and what `locate` saves of the user's own session, is redacted."""
    home = tmp_path / "user"
    for name in "ab":
        (tmp_path / name).mkdir()
    make_session(home / ".mycli", FILES)
    with running_daemon(tmp_path / "a") as a, running_daemon(tmp_path / "b") as b:
        make_session(a.home / ".mycli", FILES)
        async with connect(a.target) as source:
            result = await relay(source, ID, [b.target], store(), ConversationContext(redaction=REDACTION))
        assert result.outcomes[0].error is None
        placed = (b.home / ".mycli/sessions" / ID / "files/notes.md").read_bytes()
    adopted = await store().locate(ID, ConversationContext(conversation_home=home, redaction=REDACTION))
    assert placed == b"key: [redacted:key]\n"
    assert result.record.redactions == adopted.redactions == {"key": 4, "mail": 1}
    assert contents(adopted.path)["files/notes.md"] == placed
    assert (home / ".mycli/sessions" / ID / "files/notes.md").read_bytes() == FILES["files/notes.md"]


async def test_no_disk_of_the_host_sees_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the scratch file nor the temporary file that large contents wait in ever held one."""
    written: list[bytes] = []
    real = tempfile.SpooledTemporaryFile.write
    monkeypatch.setattr(
        tempfile.SpooledTemporaryFile, "write", lambda spool, data: (written.append(data), real(spool, data))[1]
    )
    line = json.dumps({"k": SECRET, "pad": "x" * (1 << 20)}).encode() + b"\n"
    with running_daemon(tmp_path) as daemon:
        make_session(daemon.home / ".mycli", {"files/log.jsonl": line * 12})
        async with connect(daemon.target) as sandbox:
            record = await store().capture(ID, replace(rules(tmp_path / "r"), sandbox=sandbox))
    assert record.redactions["key"] == 12
    assert sum(map(len, written)) > 8 << 20
    assert b"1234567890" not in b"".join(written)
    assert contents(record.path)["files/log.jsonl"].count(b'{"k": "[redacted:key]", "pad": "xx') == 12


async def test_what_fails_leaves_the_saved_file(tmp_path: Path) -> None:
    """A function that fails and a replacement that breaks the limit change nothing and show nothing."""

    def angry(text: str) -> str:
        raise ValueError(text)

    failing = {
        "function": (Redaction([FunctionRule("f", angry)]), ConfigurationError, "invalid_argument"),
        "limit": (Redaction([LiteralRule("n", "nothing", "x" * 10_000)]), LimitError, "max_bytes"),
    }
    with running_daemon(tmp_path) as daemon:
        make_session(daemon.home / ".mycli", FILES)
        async with connect(daemon.target) as sandbox:
            context = replace(rules(tmp_path / "r"), sandbox=sandbox, limits=Limits(max_bytes=5000))
            record = await store().capture(ID, context)
            before = files_below(tmp_path / "r")
            for redaction, kind, reason in failing.values():
                with pytest.raises(kind) as caught:
                    await store().capture(ID, replace(context, redaction=redaction))
                assert isinstance(caught.value, OutpostError)
                assert caught.value.reason == reason
                assert "nothing" not in str(caught.value)
    assert files_below(tmp_path / "r") == before
    assert record.path.exists()


async def test_a_capture_that_meets_a_change_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hits of the attempt that failed are not counted."""
    real = RedactedCapture.data
    attempts: list[int] = []
    with running_daemon(tmp_path) as daemon:
        session = make_session(daemon.home / ".mycli", {**FILES, "files/z.txt": b"z" * (30 << 20)})

        def data(self: RedactedCapture, index: int, piece: memoryview) -> None:
            real(self, index, piece)
            if not attempts:
                attempts.append(index)
                (session / "files/notes.md").write_bytes(b"new\n")

        monkeypatch.setattr(RedactedCapture, "data", data)
        async with connect(daemon.target) as sandbox:
            record = await store().capture(ID, replace(rules(tmp_path / "r"), sandbox=sandbox, retries=3))
    assert record.redactions == {"key": 3, "mail": 1}
