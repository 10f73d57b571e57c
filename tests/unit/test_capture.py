"""A capture sends what the client lacks, names the whole by its digest, and reports nothing that changed."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_agent.core.capture import Capture
from sandbox_api.errors import LimitError, SessionError
from sandbox_api.limits import MIB, Limits
from sandbox_api.manifest import DIGEST_BYTES, Entry, bundle_digest, check_entries
from support.sandbox import BUCKETED, FLAT, ID, make_session, place, sandbox, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from sandbox_agent.core.sandbox import Place, Sandbox

FILES = {"state.json": b"{}", "agents/main/wire.jsonl": b"line\n" * 40, "empty": b""}
LARGE = os.urandom(200_000)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    """Hold a sandbox with an empty home."""
    (tmp_path / "home").mkdir()
    with sandbox(tmp_path / "home") as held:
        yield held


def capture(
    box: Sandbox, where: Place | None = None, *, limits: Limits | None = None, held: Iterable[Entry] = ()
) -> Capture:
    """Make a capture of the made-up session."""
    return Capture(
        box,
        where or place(),
        limits=limits or Limits(),
        skip_links=False,
        held={entry.path: entry for entry in held},
    )


def entry(path: str, content: bytes) -> Entry:
    """Return a complete entry of a file."""
    return Entry(path.encode(), len(content), hashlib.sha256(content).digest())


def received(
    entries: Iterable[Entry], payload: bytes, held: Mapping[str, bytes]
) -> tuple[dict[str, bytes], list[Entry]]:
    """Read a payload as a client does: contents from manifest, payload and what is held, each checked by its digest."""
    contents, complete = {}, []
    for one in entries:
        path, digest = one.path.decode(), one.sha256
        content = held.get(path, b"")[: one.from_offset]
        if not digest:
            content += payload[: one.sent_bytes]
            digest = payload[one.sent_bytes : one.sent_bytes + DIGEST_BYTES]
            payload = payload[one.sent_bytes + DIGEST_BYTES :]
        assert hashlib.sha256(content).digest() == digest
        contents[path] = content
        complete.append(Entry(one.path, one.size, digest))
    assert payload == b""
    return contents, complete


def moved(box: Sandbox, held: Mapping[str, bytes] | None = None, *, room: int = MIB) -> tuple[dict[str, bytes], int]:
    """Capture to the end; return the contents as a client has them, and the size of the payload."""
    held = held or {}
    with capture(box, held=[entry(path, content) for path, content in held.items()]) as running:
        entries = running.begin()
        check_entries(entries, Limits(), complete=False)
        pieces = list(running.pieces(lambda: room))
        assert all(0 < len(piece) <= room for piece in pieces)
        contents, complete = received(entries, b"".join(pieces), held)
        assert running.finish() == bundle_digest(complete)
    return contents, sum(len(piece) for piece in pieces)


def refusal(box: Sandbox, where: Place | None = None, *, limits: Limits | None = None) -> SessionError | LimitError:
    """Return the failure that a capture begins with."""
    with capture(box, where, limits=limits) as running, pytest.raises((SessionError, LimitError)) as caught:
        running.begin()
    return caught.value


@pytest.mark.parametrize("room", [1, 7, 31, 33, 65_536, MIB])
def test_everything_arrives_whatever_the_room(box: Sandbox, tmp_path: Path, room: int) -> None:
    """Contents and digests arrive in order, in pieces that fit, and the digest is that of the whole bundle."""
    files = FILES if room < 100 else {**FILES, "large": LARGE, "b/small": LARGE[:60_000]}
    make_session(tmp_path / "home", files)
    contents, _ = moved(box, room=room)
    assert contents == files


def test_says_where_and_what_was_left_out(box: Sandbox, tmp_path: Path) -> None:
    """Source, the process that has it open, and what was left out are told."""
    lock = f"inuse.{os.getpid()}.lock"
    session = make_session(tmp_path / "home", {**FILES, lock: b"", "logs/x": b""})
    with capture(box) as running:
        running.begin()
        assert running.source == os.fsencode(session)
        assert running.in_use_pid == os.getpid()
        assert running.left_out == [(lock.encode(), "not_selected"), (b"logs", "not_selected")]
        assert running.left_out_count == 2


def test_source_has_the_root_link_resolved(box: Sandbox, tmp_path: Path) -> None:
    """With an accepted root link the source is the path it leads to."""
    home = tmp_path / "home"
    session = make_session(home, FILES, bucket="w")
    (home / ".demo").rename(home / "real")
    (home / ".demo").symlink_to("real")
    assert refusal(box, place(BUCKETED)).reason == "root_symlink"
    with capture(box, place(BUCKETED, follow_root_link=True)) as running:
        running.begin()
        assert running.source == os.fsencode(home / "real" / session.relative_to(home / ".demo"))


def test_nothing_in_the_sandbox_changes(box: Sandbox, tmp_path: Path) -> None:
    """A capture leaves entries, contents and times of modification as they are."""
    make_session(tmp_path / "home", FILES)

    def state() -> list[tuple[str, int, int]]:
        return sorted((str(path), path.stat().st_mtime_ns, path.stat().st_ino) for path in tmp_path.rglob("*"))

    before = state()
    moved(box)
    assert state() == before


def test_unchanged_files_are_not_sent(box: Sandbox, tmp_path: Path) -> None:
    """A file whose size and digest the client has is named and not sent, an empty one too."""
    make_session(tmp_path / "home", FILES)
    contents, payload_bytes = moved(box, FILES)
    assert (contents, payload_bytes) == (FILES, 0)


def test_a_file_that_grew_is_sent_from_its_old_end(box: Sandbox, tmp_path: Path) -> None:
    """When the digest of the old part matches, only what is new is sent, with the digest of the whole."""
    make_session(tmp_path / "home", {**FILES, "large": LARGE})
    held = {**FILES, "large": LARGE[:150_000]}
    contents, payload_bytes = moved(box, held)
    assert contents["large"] == LARGE
    assert payload_bytes == 50_000 + DIGEST_BYTES


@pytest.mark.parametrize(
    "held", [b"x" * 200, b"line\n" * 39 + b"LINE\n", b"LINE\n", b"line\n" * 50, b""], ids=lambda held: str(len(held))
)
def test_a_file_that_differs_is_sent_whole(box: Sandbox, tmp_path: Path, held: bytes) -> None:
    """Another content of the same size, another beginning, a longer or an empty one: the file is sent whole."""
    make_session(tmp_path / "home", FILES)
    contents, payload_bytes = moved(box, {**FILES, "agents/main/wire.jsonl": held})
    assert contents == FILES
    assert payload_bytes == 200 + DIGEST_BYTES


trees = st.dictionaries(st.sampled_from(["a", "b/c", "b/d", "e"]), st.binary(max_size=20), max_size=4)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(now=trees, held=trees, room=st.integers(1, 50))
def test_any_old_copy_becomes_the_new_one(
    tmp_path_factory: pytest.TempPathFactory, now: dict[str, bytes], held: dict[str, bytes], room: int
) -> None:
    """Whatever the client holds, it has the session's content afterwards."""
    home = tmp_path_factory.mktemp("home")
    make_session(home, {"state.json": b"", **now})
    with sandbox(home) as box:
        assert moved(box, held, room=room)[0] == {"state.json": b"", **now}


def test_not_found_with_and_without_a_cli_home(box: Sandbox, tmp_path: Path) -> None:
    """A CLI home or session that is not there is `not_found`."""
    assert refusal(box).reason == "not_found"
    make_session(tmp_path / "home", FILES, conversation_id="other")
    assert refusal(box).reason == "not_found"


def test_missing_required_files_are_all_named(box: Sandbox, tmp_path: Path) -> None:
    """Without its required files a session is refused with all that are missing; without any file it is `empty`."""
    session = make_session(tmp_path / "home", {"x.lock": b""})
    assert refusal(box).reason == "empty"
    write(session, {"a": b""})
    (session / "state.json").mkdir()
    error = refusal(box, place(replace(FLAT, required=("state.json", "a", "b/c"))))
    assert error.reason == "missing_required"
    assert [offender.path for offender in error.offenders] == ["state.json", "b/c"]


def test_the_smaller_limits_hold(box: Sandbox, tmp_path: Path) -> None:
    """The caller's limits and the daemon's own both hold."""
    make_session(tmp_path / "home", FILES)
    assert refusal(box, limits=Limits(max_files=2)).reason == "max_files"
    assert refusal(box, limits=Limits(max_bytes=10)).reason == "max_bytes"
    strict = replace(box, limits=Limits(max_files=2))
    assert refusal(strict, limits=Limits(max_files=10)).reason == "max_files"


def test_a_change_after_a_file_was_read_is_found_at_the_end(box: Sandbox, tmp_path: Path) -> None:
    """What was read, and changed before the end, is `changed` with all entries that did."""
    session = make_session(tmp_path / "home", FILES)
    with capture(box) as running:
        running.begin()
        for _ in running.pieces(lambda: MIB):
            pass
        with (session / "agents/main/wire.jsonl").open("ab") as file:
            file.write(b"more")
        (session / "new").touch()
        with pytest.raises(SessionError) as caught:
            running.finish()
    assert caught.value.reason == "changed"
    assert [offender.path for offender in caught.value.offenders] == ["agents/main/wire.jsonl", "new"]


def test_a_growing_file_ends_the_stream_with_the_failure(box: Sandbox, tmp_path: Path) -> None:
    """A file that grows while it is read is never followed by a digest: the payload ends with `changed`."""
    session = make_session(tmp_path / "home", {**FILES, "large": LARGE})
    got = b""
    with capture(box) as running:
        entries = running.begin()
        reading = running.pieces(lambda: 65_536)
        while len(got) < 65_536:
            got += next(reading)
        with (session / "large").open("ab") as file:
            file.write(b"more")
        with pytest.raises(SessionError) as caught:
            got += b"".join(reading)
    assert caught.value.reason == "changed"
    sent_before = sum(one.size + DIGEST_BYTES for one in entries if one.path < b"large")
    assert len(got) < sent_before + len(LARGE)


def test_a_file_that_changed_between_comparing_and_sending_is_found(box: Sandbox, tmp_path: Path) -> None:
    """A grown file whose old part is rewritten after it was compared is `changed`, not a splice."""
    session = make_session(tmp_path / "home", {**FILES, "large": LARGE})
    with capture(box, held=[entry("large", LARGE[:1000])]) as running:
        running.begin()
        (session / "large").write_bytes(bytes(len(LARGE)))
        with pytest.raises(SessionError) as caught:
            list(running.pieces(lambda: MIB))
    assert caught.value.reason == "changed"


@pytest.mark.parametrize("how", ["replaced", "linked", "gone", "way"])
def test_a_session_that_was_replaced_is_changed(box: Sandbox, tmp_path: Path, how: str) -> None:
    """A session whose directory is exchanged, moved or linked while it is read is `changed`."""
    session = make_session(tmp_path / "home", FILES)
    with capture(box) as running:
        running.begin()
        list(running.pieces(lambda: MIB))
        if how == "way":
            session.parent.rename(tmp_path / "moved")
            session.parent.symlink_to(tmp_path / "moved")
        else:
            session.rename(tmp_path / "moved")
        if how == "replaced":
            make_session(tmp_path / "other", FILES).rename(session)
        elif how == "linked":
            session.symlink_to(tmp_path / "moved")
        with pytest.raises(SessionError) as caught:
            running.finish()
    assert caught.value.reason == "changed"
    assert caught.value.offenders[0].path == str(session)


def finished(box: Sandbox, validate: str) -> str:
    """Capture with a validate hook; return the reason it ends with, or an empty text."""
    with capture(box, place(replace(FLAT, validate=validate))) as running:
        running.begin()
        list(running.pieces(lambda: MIB))
        try:
            running.finish()
        except SessionError as error:
            return f"{error.reason}: {error.message}"
    return ""


def test_validate_sees_the_captured_files(box: Sandbox, tmp_path: Path) -> None:
    """The hook gets paths and contents of what was captured; its text refuses the session as `invalid`."""
    make_session(tmp_path / "home", {**FILES, "x.lock": b"not captured"})
    hook = "lambda files, id: repr((files.paths(), files.text('state.json'), files.text('x.lock'), id))"
    assert finished(box, "lambda files, id: None") == ""
    said = finished(box, hook)
    assert said.startswith("invalid: ")
    assert said.endswith(repr((sorted(FILES), "{}", None, ID)))


def test_validate_of_an_unchanged_file_reads_it(box: Sandbox, tmp_path: Path) -> None:
    """A file the client holds, and that was not sent, is there for the hook all the same."""
    make_session(tmp_path / "home", FILES)
    where = place(replace(FLAT, validate="lambda files, id: files.text('state.json')"))
    with capture(box, where, held=[entry(path, content) for path, content in FILES.items()]) as running:
        running.begin()
        assert list(running.pieces(lambda: MIB)) == []
        with pytest.raises(SessionError, match=r"\{\}"):
            running.finish()


def test_validate_never_sees_what_was_not_captured(box: Sandbox, tmp_path: Path) -> None:
    """A file that changed since it was captured is `changed`, not judged."""
    session = make_session(tmp_path / "home", FILES)
    with capture(box, place(replace(FLAT, validate="lambda files, id: files.text('state.json')"))) as running:
        running.begin()
        list(running.pieces(lambda: MIB))
        (session / "state.json").write_bytes(b"[]")
        with pytest.raises(SessionError) as caught:
            running.finish()
    assert caught.value.reason == "changed"


def test_memory_does_not_grow_with_a_file(box: Sandbox, tmp_path: Path) -> None:
    """A file of a GiB, hashed as an old part and then sent, never takes more than a few pieces of memory."""
    session = make_session(tmp_path / "home", FILES)
    size = 1 << 30
    with (session / "huge").open("wb") as file:
        file.truncate(size)
    limits = Limits(max_bytes=2 * size)
    wide = replace(box, limits=limits)
    held = Entry(b"huge", size // 4, b"?" * DIGEST_BYTES)
    tracemalloc.start()
    try:
        with capture(wide, limits=limits, held=[held]) as running:
            running.begin()
            sent = 0
            for piece in running.pieces(lambda: MIB):
                sent += len(piece)
                if sent > size // 4:
                    break
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB
