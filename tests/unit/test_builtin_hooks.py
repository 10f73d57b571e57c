"""The hooks of the built-in formats in the interpreter that runs them in a sandbox, over every recorded session."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from host_client.agents import copilot, kimi
from sandbox_agent.core.hook_child import Helpers
from sandbox_agent.core.hooks import HookRunner
from support.hook import Context, Files, from_source
from support.recorded import recording, recordings

CASES = [(module, name) for module in (copilot, kimi) for name in recordings(module.PROFILE.format)]
CWD = "/srv/another place/demo-app"


class Held:
    """A session held in memory, as descriptors."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def paths(self) -> list[str]:
        """List the files."""
        return sorted(self._files)

    def open(self, path: str) -> int | None:
        """Open one of them."""
        with in_memory(self._files[path]) as fd:
            return os.dup(fd)


@contextmanager
def in_memory(content: bytes = b"") -> Iterator[int]:
    """Hold a content in a file without a name."""
    fd = os.memfd_create("content")
    try:
        os.write(fd, content)
        yield fd
    finally:
        os.close(fd)


def content_of(fd: int) -> bytes:
    """Read a file from its beginning."""
    return os.pread(fd, os.fstat(fd).st_size, 0)


@pytest.mark.parametrize(("module", "name"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_a_recorded_session_moves_in_the_child(module: type[copilot], name: str) -> None:
    """Within memory and time limits each hook gives what it gives here, files that look at others included."""
    session = recording(module.PROFILE.format, name)
    profile = module.PROFILE.compile()
    target = f"/other/{session.id}"
    here: Callable[..., str] = from_source(module.relocate)
    context = Context(id=session.id, cwd=CWD, target=target, files=Files(session.files))
    with HookRunner(profile) as hooks:
        assert hooks.validate(session.id, Held(session.files)) is None
        if profile.buckets:
            assert hooks.bucket(CWD.encode()).decode() == from_source(module.bucket)(CWD, Helpers())
        for path in filter(profile.is_relocated, session.files):
            with in_memory(session.files[path]) as source, in_memory() as moved:
                hooks.relocate(
                    path,
                    source,
                    moved,
                    conversation_id=session.id,
                    cwd=CWD.encode(),
                    target=target.encode(),
                    files=Held(session.files),
                )
                assert content_of(moved) == here(path, session.files[path].decode(), context).encode()
                assert content_of(moved) != session.files[path]


def test_a_relocation_without_a_session_sees_no_files() -> None:
    """A hook that looks for another file is told that there is none."""
    index = b'{"snapshots":[]}'
    with HookRunner(copilot.PROFILE.compile()) as hooks, in_memory(index) as source, in_memory() as moved:
        hooks.relocate(
            "rewind-file-snapshots/index.json", source, moved, conversation_id="s1", cwd=b"/w", target=b"/h/s1"
        )
        assert content_of(moved) == index


def test_a_large_session_fits_the_limits_of_the_child(tmp_path: Path) -> None:
    """A conversation of 40 MiB with letters beyond the basic plane is checked and moved within memory and time."""
    start = '{"type":"session.start","data":{"sessionId":"s1","context":{"cwd":"/ws"}}}\n'
    event = '{"type":"user.message","data":{"content":"' + "word \U0001f600 " * 1000 + '"}}\n'
    content = (start + event * ((40 << 20) // len(event.encode()))).encode()
    files = {"events.jsonl": content, "workspace.yaml": b"id: s1\ncwd: /ws\n"}
    (tmp_path / "events.jsonl").write_bytes(content)
    source = os.open(tmp_path / "events.jsonl", os.O_RDONLY)
    target = os.open(tmp_path / "moved", os.O_RDWR | os.O_CREAT)
    try:
        with HookRunner(copilot.PROFILE.compile()) as hooks:
            assert hooks.validate("s1", Held(files)) is None
            hooks.relocate("events.jsonl", source, target, conversation_id="s1", cwd=b"/new", target=b"/h/s1")
        assert content_of(target) == content.replace(b'"/ws"', b'"/new"')
    finally:
        os.close(source)
        os.close(target)
