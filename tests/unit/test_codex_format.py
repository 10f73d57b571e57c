"""The layout of Codex: names of rollouts, which belong together, and the offsets by which they refer to others."""

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from host_client.agents.codex import LAYOUT, conversation_id, resume_command
from host_client.errors import SessionError
from host_client.session.compression import compressed
from host_client.stores.layout import Conversation, Reference, Related, SandboxPlace, Skipped
from host_client.stores.transcript_home import HostFiles, HostHome
from support.host_files import HostTree
from support.recorded import DATA

A, B, C, D = (f"01a22be9-6e94-7931-90f0-7b34fd12f65{digit}" for digit in "0123")


def _name(thread_id: str) -> str:
    return f"rollout-2026-11-30T10-04-08-{thread_id}.jsonl"


def _path(thread_id: str, folder: str = "sessions/2026/11/30") -> PurePosixPath:
    return PurePosixPath(folder, _name(thread_id))


def _meta(thread_id: str, session_id: str = "", base: Mapping[str, object] | None = None) -> bytes:
    payload = {"session_id": session_id or thread_id, "id": thread_id, "cwd": "/w"}
    told = {"type": "session_meta", "payload": payload | ({"history_base": base} if base else {})}
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def _write(home: Path, files: Mapping[PurePosixPath, bytes]) -> None:
    for path, content in files.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(content)


async def _related(home: Path, wanted_id: str, transcript: PurePosixPath) -> list[Related | Skipped]:
    return list(await LAYOUT.related(Conversation(wanted_id, transcript, HostTree(home), {})))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"sessions/2026/11/30/{_name(A)}", A),
        (f"sessions/2026/11/30/{_name(A)}.zst", A),
        (f"sessions/{_name(A)}", A),
        (f"archived_sessions/{_name(A)}", A),
        (f"elsewhere/{_name(A)}", None),
        (f"sessions/2026/rollout-{A}.jsonl", None),
        (f"sessions/2026/11/30/{_name(A)}.bak", None),
        (f"sessions/2026/11/30/{_name(A).upper()}", None),
    ],
)
def test_the_id_of_a_rollout(path: str, expected: str | None) -> None:
    """The id is at the end of the name; the name needs its time, and lies in one of the two folders."""
    assert conversation_id(PurePosixPath(path)) == expected


@pytest.mark.parametrize("folder", ["sessions/2026/11/30", "archived_sessions", "sessions"])
def test_the_place_is_kept(folder: str) -> None:
    """Folders of dates and names stay: a target that knows a thread looks for it in the same place."""
    path = _path(A, folder)
    assert LAYOUT.capture_path(A, Path("/r"), Path("/u/.codex"), PurePosixPath("/h/.codex") / path) == Path(
        "/u/.codex", path
    )
    place = SandboxPlace(PurePosixPath("/h/.codex"), PurePosixPath("/w"))
    assert LAYOUT.remote_path(A, place, Path("/u/sessions/x/.codex", path)) == place.home / path


@pytest.mark.anyio
@pytest.mark.parametrize("copy", [_path(B, "archived_sessions"), _path(B).with_suffix(".jsonl.zst")])
async def test_a_thread_that_is_there_twice_is_refused(tmp_path: Path, copy: PurePosixPath) -> None:
    """Of two rollouts of a sub-agent the CLI takes one without a word; here both are named."""
    packed = b"".join(compressed([_meta(B, A)]))
    _write(
        tmp_path, {_path(A): _meta(A), _path(B): _meta(B, A), copy: packed if copy.suffix == ".zst" else _meta(B, A)}
    )
    home = HostHome(tmp_path, tmp_path, tmp_path, tmp_path, ())
    with pytest.raises(SessionError) as caught:
        await LAYOUT.related(Conversation(A, _path(A), HostFiles(home), {}))
    assert caught.value.reason == "ambiguous"
    assert {offender.path for offender in caught.value.offenders} == {str(_path(B)), str(copy)}


@pytest.mark.anyio
async def test_a_sub_agent_is_known_in_any_spacing(tmp_path: Path) -> None:
    """A rollout that something wrote anew has spaces in its first line, which the CLI does not mind."""
    spaced = json.dumps(json.loads(_meta(B, A))).encode() + b"\n"
    _write(tmp_path, {_path(A): _meta(A), _path(B): spaced})
    assert Related(_path(B), "transcript") in await _related(tmp_path, A, _path(A))


@pytest.mark.anyio
async def test_a_fork_comes_with_what_it_was_forked_from(tmp_path: Path) -> None:
    """A fork of a fork needs both others, wherever they lie; threads that have nothing to do with it stay."""
    _write(
        tmp_path,
        {
            _path(A): _meta(A, base={"thread_id": B, "end_byte_offset": 10}),
            _path(B, "archived_sessions"): _meta(B, base={"thread_id": C, "end_byte_offset": 20}),
            _path(C, "sessions/2025/01/01"): _meta(C),
            _path(D): _meta(D, base={"thread_id": C, "end_byte_offset": 20}),
        },
    )
    assert await _related(tmp_path, A, _path(A)) == [
        Related(_path(B, "archived_sessions"), "transcript", required=True),
        Related(_path(C, "sessions/2025/01/01"), "transcript", required=True),
    ]


@pytest.mark.anyio
async def test_sub_agents_come_with_their_thread(tmp_path: Path) -> None:
    """All rollouts of a family name the thread it began with; a sub-agent's own id brings the family, too."""
    _write(
        tmp_path,
        {
            _path(A): _meta(A),
            _path(B): _meta(B, session_id=A),
            _path(C): _meta(C, session_id=A),
            _path(D): _meta(D) + b'{"text":"\\"session_id\\":\\"' + A.encode() + b'\\""}\n',
        },
    )
    assert await _related(tmp_path, A, _path(A)) == [Related(_path(one), "transcript") for one in (B, C)]
    assert await _related(tmp_path, B, _path(B)) == [Related(_path(one), "transcript") for one in (A, C)]


@pytest.mark.anyio
@pytest.mark.parametrize(("copies", "reason"), [((), "missing_required"), (("sessions/1", "sessions/2"), "ambiguous")])
async def test_a_fork_without_one_parent_is_refused(tmp_path: Path, copies: tuple[str, ...], reason: str) -> None:
    """The CLI cannot resume it without its parent, and nobody guesses which of two is meant."""
    _write(tmp_path, {_path(A): _meta(A, base={"thread_id": B, "end_byte_offset": 10})})
    _write(tmp_path, {_path(B, folder): _meta(B) for folder in copies})
    with pytest.raises(SessionError) as caught:
        await _related(tmp_path, A, _path(A))
    assert caught.value.reason == reason
    assert B in str(caught.value)
    assert len(caught.value.offenders) == len(copies)


@pytest.mark.anyio
async def test_a_hostile_parent_is_no_pattern(tmp_path: Path) -> None:
    """What a rollout names as its parent is an id or nothing: it finds no other files."""
    _write(tmp_path, {_path(A): _meta(A, base={"thread_id": "*", "end_byte_offset": 10}), _path(B): _meta(B)})
    with pytest.raises(SessionError) as caught:
        await _related(tmp_path, A, _path(A))
    assert caught.value.reason == "missing_required"


@pytest.mark.anyio
async def test_threads_that_name_each_other_end(tmp_path: Path) -> None:
    """A circle of parents cannot come from the CLI, and does not keep us going round."""
    _write(
        tmp_path,
        {
            _path(A): _meta(A, base={"thread_id": B, "end_byte_offset": 10}),
            _path(B): _meta(B, base={"thread_id": A, "end_byte_offset": 10}),
        },
    )
    assert await _related(tmp_path, A, _path(A)) == [Related(_path(B), "transcript", required=True)]


@pytest.mark.anyio
async def test_names_come_and_databases_stay() -> None:
    """Of the index of names only the lines of the thread belong."""
    home = DATA / "codex/0.171.0/interactive/home/.codex"
    wanted_id = json.loads((home.parents[1] / "expected.json").read_text())["session_id"]
    (rollout,) = home.rglob("rollout-*")
    related = await _related(home, wanted_id, PurePosixPath(rollout.relative_to(home)))
    index = PurePosixPath("session_index.jsonl")
    assert related == [Related(index, "lines", key="id", values=frozenset({wanted_id}))]


@pytest.mark.anyio
async def test_secrets_and_databases_are_named(tmp_path: Path) -> None:
    """The result says what was left and why."""
    lock = f"thread-writer-locks/{A}.lock"
    _write(tmp_path, {_path(A): _meta(A)} | {PurePosixPath(one): b"x" for one in ("auth.json", "state_5.sqlite", lock)})
    related = await _related(tmp_path, A, _path(A))
    assert all(isinstance(item, Skipped) and item.why for item in related)
    assert [str(item.path) for item in related] == ["state_5.sqlite", "auth.json", lock]


def test_the_offset_of_a_recorded_fork() -> None:
    """0.171.0: the number that counts is found among what else the line says."""
    home = DATA / "codex/0.171.0/fork/home/.codex"
    paths = [PurePosixPath(path.relative_to(home)) for path in home.rglob("rollout-*")]
    expected = json.loads((home.parents[1] / "expected.json").read_text())
    (parent_id,) = expected["other_ids"]
    (fork,) = (path for path in paths if conversation_id(path) == expected["session_id"])
    (parent,) = (path for path in paths if conversation_id(path) == parent_id)
    line = (home / fork).read_bytes().partition(b"\n")[0]
    reference = LAYOUT.reference(line, fork, paths)
    assert reference is not None
    assert (reference.path, reference.offset) == (parent, (home / parent).stat().st_size)
    assert line[slice(*reference.span)] == str(reference.offset).encode()
    assert LAYOUT.reference((home / parent).read_bytes().partition(b"\n")[0], parent, paths) is None


def test_a_text_that_looks_like_an_offset_is_none() -> None:
    """The same characters in another object, in a text, and the number of a parent that is not there."""
    base = {"end_byte_offset": 7, "thread_id": B}
    told = {"a": '"end_byte_offset": 7', "history_base": base, "type": "session_meta"}
    payload = {"other": {"end_byte_offset": 7}, "text": '{"end_byte_offset": 7}', "history_base": base}
    line = json.dumps(told | {"payload": payload}).encode()
    start = line.rindex(b'"end_byte_offset": 7') + len(b'"end_byte_offset": ')
    assert LAYOUT.reference(line, _path(A), [_path(A), _path(B)]) == Reference(_path(B), 7, (start, start + 1))
    assert LAYOUT.reference(line, _path(A), [_path(A), _path(C)]) is None


def test_the_command_that_resumes() -> None:
    """By the id: 0.171.0 begins a new thread without a word for a name that it does not find."""
    assert resume_command(A, PurePosixPath("/w")) == ["codex", "exec", "resume", A]
