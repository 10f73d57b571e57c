"""Tools installed in a sandbox by the real npm from the real registry."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from e2e.clis import install
from host_client import connect
from host_client.agents.catalogue import CATALOGUE, NpmPackage
from host_client.agents.registry import format_names
from host_client.agents.tool import for_platform
from host_client.errors import ProcessError
from host_client.turns.install import ensure
from support.daemon import running_daemon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from host_client import Sandbox
    from host_client.agents.catalogue import Tool

pytestmark = [pytest.mark.clis, pytest.mark.anyio, pytest.mark.timeout(400)]

UNREACHABLE = {"ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH"}
SMALL = {"package": "semver", "version": "7.7.3", "program": "semver"}


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """A sandbox with npm, whose repository tries to send it elsewhere."""
    if shutil.which("npm", path="/usr/bin:/bin") is None:
        pytest.skip("npm is not installed")
    with running_daemon(tmp_path, environment={"PATH": "/usr/bin:/bin"}) as daemon:
        (daemon.workspace / ".npmrc").write_text("registry=http://127.0.0.1:9/\nignore-scripts=false\n")
        (daemon.workspace / "package.json").write_text('{"workspaces": ["*"]}')
        async with connect(daemon.target) as connected:
            yield connected


async def installed(sandbox: Sandbox, name: str, catalogue: Mapping[str, Tool]) -> str:
    """Install a tool, or skip the test where there is no registry."""
    try:
        return await ensure(sandbox, f"{name}-that-is-not-there", name, catalogue=catalogue)
    except ProcessError as error:
        if error.facts.get("npm_code") in UNREACHABLE:
            pytest.skip(f"the npm registry cannot be reached: {error.facts['npm_code']}")
        raise


async def test_a_built_in_tool_is_installed_and_runs(sandbox: Sandbox, tmp_path: Path) -> None:
    """Kimi Code, on the Node that comes with it: the largest lock, and the one whose program has two words."""
    program = await installed(sandbox, "kimi", CATALOGUE)
    done = (await sandbox.run([program, "--version"])).check()
    assert CATALOGUE["kimi"].version in done.stdout.decode()
    assert await installed(sandbox, "kimi", CATALOGUE) == program
    assert sorted(each.name for each in (tmp_path / "workspace").iterdir()) == [".npmrc", "package.json"]
    assert {".npm", ".cache", ".config"}.isdisjoint(each.name for each in (tmp_path / "home").iterdir())


async def test_a_package_of_ones_own_needs_no_lock(sandbox: Sandbox) -> None:
    """A small one, by its exact version."""
    program = await installed(sandbox, "small", {"small": NpmPackage(**SMALL)})
    done = (await sandbox.run([program, "1.0.0", "2.0.0", "--range", ">1"])).check()
    assert done.stdout == b"2.0.0\n"


async def test_what_the_lock_does_not_promise_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    """The SHA-512 of the registry's tarball is compared with the lock's."""
    locked = {"version": SMALL["version"], "integrity": f"sha512-{'A' * 86}=="}
    lock = {
        "name": "small",
        "lockfileVersion": 3,
        "requires": True,
        "packages": {"": {"dependencies": {"semver": SMALL["version"]}}, "node_modules/semver": locked},
    }
    with pytest.raises(ProcessError) as failure:
        await installed(sandbox, "small", {"small": NpmPackage(**SMALL, lock=json.dumps(lock))})
    assert failure.value.facts["npm_code"] == "EINTEGRITY"
    assert list((tmp_path / "home/.outpost-tools").rglob("semver*")) == []


@pytest.mark.parametrize("name", format_names())
async def test_what_the_catalogue_starts_is_in_the_packages(name: str, sandbox: Sandbox) -> None:
    """The program of this machine's platform is where the catalogue says, and runs, without any install script."""
    try:
        folder = install.installed(name)
    except install.UnavailableError as reason:
        pytest.skip(f"{name} cannot be installed here: {reason}")
    tool, info = CATALOGUE[name], await sandbox.info()
    assert isinstance(tool, NpmPackage)
    words = for_platform(tool.commands, info.machine, info.c_library)
    assert words is not None
    command = [str(folder / "node_modules" / word) for word in words]
    done = await sandbox.run([*command, "--version"], deadline_seconds=120)
    assert tool.version in done.check().stdout.decode()
