"""Programs in sandboxes: what is there is used, what is missing is installed as a whole and only once."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from host_client import connect
from host_client.errors import ConfigurationError, ProcessError
from host_client.turns.install import ensure
from support.install_scene import INSTALLS, install_scene, package

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from host_client import Sandbox
    from support.install_scene import InstallScene

pytestmark = pytest.mark.anyio

CATALOGUE = {"tool": package()}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[InstallScene]:
    """A daemon of this test alone."""
    with install_scene(tmp_path) as made:
        yield made


@pytest.fixture
async def sandbox(scene: InstallScene) -> AsyncIterator[Sandbox]:
    """A client of it."""
    async with connect(scene.daemon.target) as connected:
        yield connected


async def says(sandbox: Sandbox, program: str, *arguments: str) -> str:
    """Run a program and return what it prints."""
    return (await sandbox.run([program, *arguments])).check().stdout.decode().strip()


def entries(folder: str) -> list[str]:
    """Return what is in a folder."""
    return sorted(each.name for each in Path(folder).iterdir())


def manifest(folder: str) -> Any:
    """Return the manifest that npm got."""
    return json.loads(Path(folder, "package.json").read_text())


async def failure_of(sandbox: Sandbox, name: str = "tool", **options: Any) -> ProcessError:
    """Try to get a program, which must fail."""
    with pytest.raises(ProcessError) as failure:
        await ensure(sandbox, name, "tool", **{"catalogue": CATALOGUE, **options})
    return failure.value


async def test_a_program_in_path_is_used(scene: InstallScene, sandbox: Sandbox) -> None:
    """Whatever its version: nothing is installed beside it, also where a tool is named."""
    scene.npm()
    there = scene.program("tool", "echo own")
    assert await ensure(sandbox, "tool", "tool", catalogue=CATALOGUE) == str(there)
    assert await ensure(sandbox, "tool", None) == str(there)
    assert not scene.tools.exists()


async def test_the_path_of_the_turn_counts(scene: InstallScene, sandbox: Sandbox, tmp_path: Path) -> None:
    """A program, and npm, are looked for where the agent's command would find them."""
    scene.npm("exit 1")
    (tmp_path / "elsewhere").mkdir()
    scene.program("tool", "echo own").rename(tmp_path / "elsewhere" / "tool")
    variables = {"PATH": str(tmp_path / "elsewhere")}
    assert await ensure(sandbox, "tool", "tool", catalogue=CATALOGUE, variables=variables) == str(
        tmp_path / "elsewhere" / "tool"
    )
    assert (await failure_of(sandbox, "other", variables=variables)).facts == {"program": "npm"}


async def test_a_missing_program_is_installed_once(scene: InstallScene, sandbox: Sandbox) -> None:
    """The next turn, and another client, find it there and do not ask npm again."""
    scene.npm()
    program = await ensure(sandbox, "tool", "tool", catalogue=CATALOGUE)
    assert await says(sandbox, program, "a b", "c") == "tool a b c"
    async with connect(scene.daemon.target) as other:
        assert await ensure(other, "tool", "tool", catalogue=CATALOGUE) == program
    assert len(scene.runs()) == 1
    assert scene.tools in scene.tools.joinpath(program).parents
    assert not [state for state in await sandbox.processes.list() if state.exit is None]


async def test_what_npm_is_told(scene: InstallScene, sandbox: Sandbox) -> None:
    """It installs by the lock without scripts, in its own directory, and gets the way to the registry and no keys."""
    scene.npm(f"test -f package.json && test -f package-lock.json\nmkdir npm-cache\n{INSTALLS}")
    (scene.daemon.workspace / ".npmrc").write_text("registry=http://evil.invalid/")
    variables = {
        "AGENT_KEY": "secret",
        "https_proxy": "http://proxy.invalid",
        "npm_config_registry": "http://mirror.invalid",
    }
    program = await ensure(sandbox, "tool", "tool", catalogue=CATALOGUE, variables=variables)
    (run,) = scene.runs()
    (cwd,) = run["cwd"]
    assert run["argv"][0] == "ci"
    flags = {"--ignore-scripts=true", f"--cache={cwd}/npm-cache", "--global=false", "--workspaces=false"}
    assert flags < set(run["argv"])
    assert not [word for word in run["argv"] if word.startswith("--prefix")]  # would hide the operator's settings
    assert program.startswith(f"{cwd}/node_modules/")
    assert str(scene.tools) in cwd
    assert "secret" not in str(run)
    assert {"https_proxy=http://proxy.invalid", "npm_config_registry=http://mirror.invalid"} < set(run["env"])
    assert entries(cwd) == ["node_modules", "package-lock.json", "package.json"]


async def test_what_npm_is_told_without_a_lock(scene: InstallScene, sandbox: Sandbox) -> None:
    """It gets the exact version, and runs scripts when the entry says so."""
    scene.npm()
    catalogue = {"tool": package(lock="", allow_scripts=True)}
    program = await ensure(sandbox, "tool", "tool", catalogue=catalogue)
    (run,) = scene.runs()
    assert run["argv"][0] == "install"
    assert "--ignore-scripts=false" in run["argv"]
    (cwd,) = run["cwd"]
    assert manifest(cwd)["dependencies"] == {"tool": "1.2.3"}
    assert await says(sandbox, program) == "tool"


async def test_a_script_is_started_by_its_own_interpreter(tmp_path: Path) -> None:
    """Two words become one program, wherever the home is: quotes and spaces in its name do no harm."""
    folder = tmp_path / 'it\'s a "place" $HOME'
    folder.mkdir()
    info_of = {name: ["tool/native", "tool/script"] for name in ("x86_64", "aarch64")}
    with install_scene(folder) as scene:
        scene.npm(f"{INSTALLS}touch node_modules/tool/script\n")
        async with connect(scene.daemon.target) as sandbox:
            program = await ensure(sandbox, "tool", "tool", catalogue={"tool": package(commands=info_of)})
            script = Path(program).parent / "node_modules/tool/script"
            assert await says(sandbox, program, "a  b") == f"tool {script} a  b"


async def test_another_pin_is_another_place(scene: InstallScene, sandbox: Sandbox) -> None:
    """A turn that runs one version is not disturbed by the installation of another."""
    scene.npm()
    first = await ensure(sandbox, "tool", "tool", catalogue=CATALOGUE)
    second = await ensure(sandbox, "tool", "tool", catalogue={"tool": package(allow_scripts=True)})
    assert first != second
    assert await says(sandbox, first) == await says(sandbox, second) == "tool"


async def test_without_npm_it_is_said_what_to_do(sandbox: Sandbox) -> None:
    """The sandbox's image has neither; the hint names both ways."""
    failure = await failure_of(sandbox, variables={"PATH": "/nowhere"})
    assert failure.reason == "no_such_program"
    assert "npm" in failure.message
    assert "image" in failure.hint


async def test_without_a_tool_a_missing_program_is_a_failure(scene: InstallScene, sandbox: Sandbox) -> None:
    """Nothing is installed for an agent that names none, nor in place of a path."""
    scene.npm()
    for name, tool in (("tool", None), ("/opt/tool", "tool"), ("bin/tool", "tool")):
        with pytest.raises(ProcessError) as failure:
            await ensure(sandbox, name, tool, catalogue=CATALOGUE)
        assert failure.value.reason == "no_such_program"
    assert not scene.runs()


async def test_a_program_that_may_not_be_executed_is_told_apart(scene: InstallScene, sandbox: Sandbox) -> None:
    """Somebody put it there: it is not replaced in silence."""
    scene.npm()
    scene.program("tool", "echo own", mode=0o644)
    assert (await failure_of(sandbox)).reason == "not_executable"
    assert not scene.runs()


async def test_an_unknown_tool_is_refused(sandbox: Sandbox) -> None:
    """Also where the program is there, so that a mistake does not wait for the sandbox in which it is not."""
    with pytest.raises(ConfigurationError) as failure:
        await ensure(sandbox, "sh", "tol", catalogue=CATALOGUE)
    assert failure.value.reason == "unknown_agent"


async def test_a_platform_that_is_not_in_the_catalogue_is_said(scene: InstallScene, sandbox: Sandbox) -> None:
    """A program of another machine is not installed."""
    scene.npm()
    failure = await failure_of(sandbox, catalogue={"tool": package(commands={"z80": ["tool/native"]})})
    assert failure.reason == "install_failed"
    assert "z80" in failure.hint
    assert not scene.runs()


@pytest.mark.parametrize(
    ("script", "expected", "hint"),
    [
        ("echo 'npm error code EINTEGRITY' >&2; exit 1", "EINTEGRITY", "something else than what is pinned"),
        ("echo 'npm ERR! code ENOTFOUND' >&2; exit 1", "ENOTFOUND", "must reach its npm registry"),
        ("echo 'npm error code ENOSPC' >&2; exit 228", "ENOSPC", "no space"),
        ("echo oops >&2; exit 9", "status 9", ""),
        ("kill -KILL $$", "signal 9", ""),
        ("exit 0", "without .bin/tool", "install script"),
        (f"{INSTALLS}chmod -x node_modules/tool/native", "without .bin/tool", "install script"),
    ],
    ids=["integrity", "network", "space", "status", "killed", "nothing", "not executable"],
)
async def test_an_npm_that_fails_leaves_nothing(
    scene: InstallScene, sandbox: Sandbox, script: str, expected: str, hint: str
) -> None:
    """What it had written goes, the failure says what npm said, and the next installation is not disturbed."""
    scene.npm(f"mkdir -p node_modules/half\n{script}\n")
    failure = await failure_of(sandbox)
    assert failure.reason == "install_failed"
    assert expected in failure.message
    assert hint in failure.hint
    assert [path for path in scene.tools.rglob("*") if path.is_file()] == []
    scene.npm()
    assert await says(sandbox, await ensure(sandbox, "tool", "tool", catalogue=CATALOGUE)) == "tool"


async def test_what_npm_complained_about_is_a_fact(scene: InstallScene, sandbox: Sandbox) -> None:
    """Its end, in printable characters."""
    scene.npm("yes x | head -c 100000 >&2; printf 'the \\033[31mreason' >&2; exit 3")
    said = (await failure_of(sandbox)).facts["stderr"]
    assert said.endswith("the \\x1b[31mreason")
    assert len(said) <= 2048


@pytest.mark.parametrize("spoil", ["program", "directory", "name"])
async def test_what_is_not_whole_any_more_is_installed_again(scene: InstallScene, sandbox: Sandbox, spoil: str) -> None:
    """The agent may have removed it, or written anything into the file that names it."""
    scene.npm()
    program = scene.tools / await ensure(sandbox, "tool", "tool", catalogue=CATALOGUE)
    (complete,) = scene.tools.glob("*/complete")
    if spoil == "program":
        (program.parents[1] / "tool" / "native").unlink()
    elif spoil == "directory":
        program.parents[2].rename(scene.tools / "away")
    else:
        elsewhere = scene.daemon.workspace / "node_modules/.bin/tool"
        elsewhere.parent.mkdir(parents=True)
        elsewhere.symlink_to("/bin/true")
        complete.write_text("../../../workspace")
    again = await ensure(sandbox, "tool", "tool", catalogue=CATALOGUE)
    assert again != str(program)
    assert await says(sandbox, again) == "tool"
    assert not program.exists()


async def test_places_are_the_agents_alone(scene: InstallScene, sandbox: Sandbox) -> None:
    """No other user can put something there."""
    scene.npm()
    await ensure(sandbox, "tool", "tool", catalogue=CATALOGUE)
    (complete,) = scene.tools.glob("*/complete")
    for folder in (scene.tools, complete.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
