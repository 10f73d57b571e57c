"""The capture of what belongs to a transcript: other files, lines of shared ones, and no secrets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from host_client.errors import OutpostError, SessionError
from host_client.session.redaction import LiteralRule, Redaction
from host_client.stores import transcript_capture, transcript_fetch
from host_client.stores.layout import Related, Skipped
from support.capture_scene import STATE, reasons, scene, with_companions
from support.conversation import files_below
from support.transcript_format import ID, lines

pytestmark = pytest.mark.anyio


async def test_companions_go_along_and_one_that_fails_is_told(tmp_path: Path) -> None:
    """Child transcripts are relocated by the main one's origin, other files not; one that is not there is a notice."""
    plain = PurePosixPath(".mycli/results/r.txt")
    missing = PurePosixPath(".mycli/results/gone.txt")
    skipped = PurePosixPath(".mycli/results/x.lock")
    layout = with_companions(Related(plain), Related(missing), Skipped(skipped, "lock of the CLI"))
    async with scene(tmp_path, layout) as it:
        children = it.source.with_suffix("") / "subagents"
        children.mkdir(parents=True)
        for number in range(20):
            (children / f"agent-{number}.jsonl").write_bytes(b'{"cwd":"/first"}\n' + lines(count=number))
        (it.sandbox_home / ".mycli/results").mkdir()
        (it.sandbox_home / plain).write_bytes(b'{"cwd":"/old"}\xff')
        (it.sandbox_home / skipped).touch()
        record = await it.capture(lines())
        assert reasons(record)[:1] == ["companion_failed"]
        assert (record.files_count, [item.path for item in record.left_out]) == (22, [str(skipped)])
        assert (it.home / plain).read_bytes() == b'{"cwd":"/old"}\xff'
        for child in children.iterdir():
            copy = it.copy.with_suffix("") / "subagents" / child.name
            assert copy.read_bytes() == it.moved(child.read_bytes())
        again = await it.capture()
        assert (again.received_bytes, again.unchanged) == (0, True)
        (children / "agent-3.jsonl").write_bytes(b'{"rewritten":1}\n')
        (it.sandbox_home / plain).write_bytes(b"other")
        changed = await it.capture()
        assert "full_capture" in reasons(changed)
        assert (it.home / plain).read_bytes() == b"other"
        assert changed.received_bytes < len(lines()), "the others are not sent again"


async def test_a_companion_of_too_many_parts_comes_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon is not asked to compare more parts than it takes: the file is fetched again, and is right."""
    plain = PurePosixPath(".mycli/results")
    async with scene(tmp_path, with_companions(Related(plain))) as it:
        (it.sandbox_home / plain).write_bytes(b"x" * 100)
        await it.capture(lines())
        assert (await it.capture()).received_bytes == 0
        monkeypatch.setattr(transcript_fetch, "MAX_PARTS_COUNT", 1)
        again = await it.capture()
        assert again.received_bytes >= 100
        assert again.unchanged
        assert (it.home / plain).read_bytes() == b"x" * 100


async def test_required_companion_fails_the_capture(tmp_path: Path) -> None:
    """A file that the conversation is useless without must come, else nothing is placed."""
    async with scene(tmp_path, with_companions(Related(PurePosixPath(".mycli/x"), required=True))) as it:
        it.source.write_bytes(lines())
        with pytest.raises(OutpostError) as caught:
            await it.store.capture(ID, it.context)
        assert caught.value.reason == "not_found"
        assert not it.copy.exists()


async def test_lines_of_a_shared_file_are_merged(tmp_path: Path) -> None:
    """Of a file that conversations share only the own lines come, and only where the host lacks them."""
    index = PurePosixPath(".mycli/index.jsonl")
    layout = with_companions(Related(index, "lines", key="id", values=frozenset({ID})))
    own, other = [b'{"id":"%b","name":"%d"}\n' % (ID.encode(), number) for number in range(2)], b'{"id":"S2"}\n'
    async with scene(tmp_path, layout) as it:
        (it.sandbox_home / index).write_bytes(own[0] + other + own[1])
        (it.home / ".mycli").mkdir()
        (it.home / index).write_bytes(b'{"id":"host"}\n' + own[1].rstrip())
        record = await it.capture(lines())
        assert (it.home / index).read_bytes() == b'{"id":"host"}\n' + own[1] + own[0]
        assert not record.unchanged
        assert (await it.capture()).unchanged


SECRET = "s3cret-value"  # noqa: S105 - of nothing


async def test_secrets_reach_no_disk_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rules, no file of the host ever has a secret, nor a digest of what had one; hits are counted."""
    plain = PurePosixPath(".mycli/r.json")
    index = PurePosixPath(".mycli/index.jsonl")
    layout = with_companions(Related(plain), Related(index, "lines", key="id", values=frozenset({ID})))
    rules = Redaction((LiteralRule("key", SECRET),))
    seen: list[bytes] = []
    real = transcript_capture._place

    def place(*args: Any) -> Any:
        seen.extend(files_below(tmp_path / "host").values())
        return real(*args)

    monkeypatch.setattr(transcript_capture, "_place", place)
    async with scene(tmp_path, layout) as it:
        (it.sandbox_home / plain).write_bytes(b'{"a":"%b"}' % SECRET.encode())
        (it.sandbox_home / index).write_bytes(b'{"id":"%b","x":"%b"}\n' % (ID.encode(), SECRET.encode()))
        content = lines() + b'{"type":"user","text":"%b"}\n' % SECRET.encode() + SECRET.encode()
        record = await it.capture(content, redaction=rules)
        assert record.redactions == {"key": 4}
        assert it.copy.read_bytes() == it.moved(content).replace(SECRET.encode(), b"[redacted:key]")
        again = await it.capture(redaction=rules)
        assert (again.unchanged, again.redactions) == (True, {"key": 4})
        kept = files_below(it.home)
        state = json.loads(kept[STATE])
        assert all(file["parts"] == [] for file in state["files"].values())
        assert not any(SECRET.encode() in data for data in (*kept.values(), *seen))
        (it.sandbox_home / plain).write_bytes(b"\xff")
        with pytest.raises(SessionError) as caught:
            await it.store.capture(ID, replace(it.context, redaction=rules))
        assert caught.value.reason == "redaction_unsupported"
        await it.capture(redaction=replace(rules, binary="pass"))
        assert (it.home / plain).read_bytes() == b"\xff"
        clear = await it.capture()
        assert it.copy.read_bytes() == it.moved(content)
        assert clear.received_bytes > len(content)
