"""What every provider of sandboxes keeps to: one suite over all implementations."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from host_client.errors import ConfigurationError, OutpostError, UnavailableError, WorkspaceError
from host_client.sandbox.sandbox import connect
from host_client.turns.provider import AcquireContext, ConnectedSandbox, LocalSandboxes
from support.daemon import running_daemon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from host_client.sandbox.sandbox import Sandbox
    from host_client.turns.provider import SandboxProvider

pytestmark = pytest.mark.anyio

WANTED = AcquireContext(agent="mycli")


class MakeProvider(Protocol):
    """Makes a provider in a private folder."""

    def __call__(self, tmp_path: Path, variables: Mapping[str, str]) -> AsyncIterator[SandboxProvider]:
        """Yield it."""


async def _local(tmp_path: Path, variables: Mapping[str, str]) -> AsyncIterator[SandboxProvider]:
    yield LocalSandboxes(tmp_path / "boxes", variables=variables)


async def _target(tmp_path: Path, variables: Mapping[str, str]) -> AsyncIterator[SandboxProvider]:
    with running_daemon(tmp_path) as daemon:
        yield ConnectedSandbox(daemon.target, variables=variables)


async def _sandbox(tmp_path: Path, variables: Mapping[str, str]) -> AsyncIterator[SandboxProvider]:
    with running_daemon(tmp_path) as daemon:
        async with connect(daemon.target, variables=variables) as sandbox:
            yield ConnectedSandbox(sandbox)


MAKERS: Mapping[str, MakeProvider] = {"local": _local, "target": _target, "sandbox": _sandbox}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> MakeProvider:
    """One implementation."""
    return MAKERS[request.param]


async def _printed(sandbox: Sandbox, *argv: str) -> str:
    return (await sandbox.run(argv)).check().stdout.decode()


async def test_a_sandbox_can_be_used_until_it_is_released(tmp_path: Path, make: MakeProvider) -> None:
    """Commands run in its workspace, with the variables of the provider; again after a release."""
    async with asynccontextmanager(make)(tmp_path, {"GIVEN": "by the provider"}) as provider:
        for _ in range(2):
            sandbox = await provider.acquire(WANTED)
            assert sandbox.variables == {"GIVEN": "by the provider"}
            assert await _printed(sandbox, "printenv", "GIVEN") == "by the provider\n"
            assert await _printed(sandbox, "pwd", "-P") == f"{sandbox.root}\n"
            assert await _printed(sandbox, "printenv", "HOME") == f"{sandbox.home}\n"
            await provider.release(sandbox)


async def test_sandboxes_are_acquired_at_the_same_time(tmp_path: Path, make: MakeProvider) -> None:
    """Releasing one of them leaves the other usable."""
    async with asynccontextmanager(make)(tmp_path, {}) as provider:
        one, other = await asyncio.gather(provider.acquire(WANTED), provider.acquire(WANTED))
        await provider.release(one)
        assert await _printed(other, "echo", "there") == "there\n"
        await provider.release(other)


async def test_a_second_release_does_nothing(tmp_path: Path, make: MakeProvider) -> None:
    """A sandbox that was released already is no failure."""
    async with asynccontextmanager(make)(tmp_path, {}) as provider:
        sandbox = await provider.acquire(WANTED)
        await provider.release(sandbox)
        await provider.release(sandbox)


async def test_local_homes_are_private_and_gone_afterwards(tmp_path: Path) -> None:
    """Every turn has a home of its own, 0700, of which nothing stays, whatever its modes; what links lead to does."""
    provider = LocalSandboxes(tmp_path / "boxes")
    (tmp_path / "outside").mkdir(mode=0o750)
    one, other = await provider.acquire(WANTED), await provider.acquire(WANTED)
    assert one.home != other.home
    for sandbox in (one, other):
        for directory in (Path(sandbox.home), Path(sandbox.root)):
            assert directory.stat().st_mode & 0o777 == 0o700
        await _printed(sandbox, "mkdir", "-p", "kept/deep")
        await _printed(sandbox, "chmod", "-R", "500", "kept")
        await _printed(sandbox, "mkdir", "-p", "shut/deep")
        await _printed(sandbox, "chmod", "0", "shut/deep", "shut")
        await _printed(sandbox, "ln", "-s", str(tmp_path / "outside"), "link")
        await provider.release(sandbox)
    assert list((tmp_path / "boxes").iterdir()) == []
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o750


async def test_local_homes_are_kept_on_request(tmp_path: Path) -> None:
    """With a workspace that is the same for all."""
    (tmp_path / "work").mkdir()
    provider = LocalSandboxes(tmp_path / "boxes", workspace=tmp_path / "work", keep=True)
    sandbox = await provider.acquire(WANTED)
    assert str(sandbox.root) == str((tmp_path / "work").resolve())
    await provider.release(sandbox)
    (kept,) = (tmp_path / "boxes").iterdir()
    assert [path.name for path in kept.iterdir()] == ["home"]


async def test_a_local_sandbox_that_cannot_be_leaves_nothing(tmp_path: Path) -> None:
    """A workspace that is no directory, or a root that is none, is a failure with nothing left behind."""
    with pytest.raises(ConfigurationError) as caught:
        await LocalSandboxes(tmp_path / "boxes", workspace=tmp_path / "missing").acquire(WANTED)
    assert caught.value.reason == "invalid_target"
    assert list((tmp_path / "boxes").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError) as refused:
        await LocalSandboxes(tmp_path / "file").acquire(WANTED)
    assert (refused.value.reason, refused.value.facts["path"]) == ("not_found", str(tmp_path / "file"))


async def test_why_a_local_sandbox_cannot_be_is_told() -> None:
    """Not that what was never made could not be removed; in /sys nobody may make anything."""
    with pytest.raises(OutpostError) as refused:
        await LocalSandboxes(Path("/sys/homes")).acquire(WANTED)
    assert refused.value.reason in ("access", "read_only")


async def test_a_sandbox_that_nobody_serves_is_a_failure(tmp_path: Path) -> None:
    """A target without a daemon is found out when the sandbox is acquired."""
    with pytest.raises(UnavailableError):
        await ConnectedSandbox(f"unix:{tmp_path}/none.sock").acquire(WANTED)


async def test_a_connected_sandbox_keeps_its_own_variables(tmp_path: Path) -> None:
    """Variables for a sandbox that is connected already have no effect, so they are refused."""
    with running_daemon(tmp_path) as daemon:
        async with connect(daemon.target) as sandbox:
            with pytest.raises(ConfigurationError) as caught:
                ConnectedSandbox(sandbox, variables={"A": "1"})
            assert caught.value.reason == "invalid_argument"
