"""The catalogue: what an entry may say, and that the built-in ones say what they must."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from host_client.agents.catalogue import CATALOGUE, Archive, Download, NpmPackage, Tool, check_tool, pinned_name
from host_client.agents.registry import format_names
from host_client.agents.tool import for_platform
from host_client.errors import ConfigurationError

MANUAL = Path(__file__).parents[2] / "docs/bootstrap.md"
SHA512 = "ab" * 64
URL = "https://host.invalid/tool.tar.gz"
PLATFORMS = [(machine, library) for machine in ("x86_64", "aarch64") for library in ("glibc", "musl")]


def lock(**changes: Any) -> str:
    """Make the lock of a package without dependencies."""
    locked = {"version": "1.2.3", "integrity": "sha512-AAAA", **changes}
    return json.dumps({"packages": {"": {"dependencies": {"tool": "1.2.3"}}, "node_modules/tool": locked}})


def npm(**fields: Any) -> NpmPackage:
    """Make an entry."""
    return NpmPackage(**{"package": "tool", "version": "1.2.3", "program": "tool", **fields})


@pytest.mark.parametrize("name", format_names())
def test_every_built_in_agent_has_a_pinned_tool(name: str) -> None:
    """Each is an npm package with a SHA-512 of everything, runs no install script and starts on every platform."""
    tool = check_tool(name, CATALOGUE)
    assert isinstance(tool, NpmPackage)
    assert tool.lock
    assert not tool.allow_scripts
    assert all(for_platform(tool.commands, *platform) for platform in PLATFORMS)
    assert json.loads(tool.manifest())["dependencies"] == {tool.package: tool.version}


@pytest.mark.parametrize("name", format_names())
def test_what_a_built_in_tool_starts_is_in_its_lock(name: str) -> None:
    """The program of each platform lies in a package that the lock installs."""
    tool = CATALOGUE[name]
    assert isinstance(tool, NpmPackage)
    packages = json.loads(tool.lock)["packages"]
    for word in (word for words in tool.commands.values() for word in words if not word.startswith(".bin/")):
        parts = word.split("/")
        package = "/".join(parts[: 2 if word.startswith("@") else 1])
        assert f"node_modules/{package}" in packages


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    """It is found out before anything is allocated."""
    with pytest.raises(ConfigurationError) as failure:
        check_tool("unheard-of\x1b", CATALOGUE)
    assert failure.value.reason == "unknown_agent"
    assert failure.value.facts["known"] == "claude,codex,copilot,kimi"
    assert "\x1b" not in failure.value.message


def test_a_name_that_is_no_plain_one_is_refused() -> None:
    """It becomes part of a path in the sandbox."""
    with pytest.raises(ConfigurationError, match="no name of a tool"):
        check_tool("../up", {"../up": npm()})


@pytest.mark.parametrize(
    "fields",
    [
        {"package": "../tool"},
        {"package": "tool@latest"},
        {"package": "--prefix"},
        {"version": "latest"},
        {"version": "^1.2.3"},
        {"version": "1.2"},
        {"version": "git+ssh://host/x"},
        {"program": "bin/tool"},
        {"program": "-x"},
        {"program": ""},
        {"commands": {"x86_64-glibc": []}},
        {"commands": {"x86_64-glibc": ["a", "b", "c"]}},
        {"commands": {"x86_64-glibc": ["../../bin/sh"]}},
        {"commands": {"x86_64-glibc": ["/bin/sh"]}},
        {"commands": {"x86_64/glibc": ["tool"]}},
        {"lock": "no JSON"},
        {"lock": "{}"},
        {"lock": "[]"},
        {"lock": lock(version="1.2.4")},
        {"lock": lock(integrity="sha1-AAAA")},
        {"lock": lock(integrity=None)},
        {"package": "other", "lock": lock()},
        {"version": "1.2.4", "lock": lock()},
    ],
    ids=str,
)
def test_a_package_that_is_not_pinned_or_plain_is_refused(fields: dict[str, Any]) -> None:
    """A tag, a range, a path, an option of npm, or a lock of something else."""
    with pytest.raises(ConfigurationError) as failure:
        npm(**fields)
    assert failure.value.reason == "invalid_argument"


def test_a_package_without_a_lock_is_installed_by_its_exact_version() -> None:
    """The manifest that npm gets has it and nothing else; with a lock it is the one the lock was made for."""
    assert json.loads(npm().manifest()) == {"private": True, "dependencies": {"tool": "1.2.3"}}
    assert json.loads(npm(lock=lock()).manifest()) == {"private": True, "dependencies": {"tool": "1.2.3"}}


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "http://host.invalid/tool.tar.gz"},
        {"url": "https://user:password@host.invalid/tool.tar.gz"},
        {"url": "https:///tool.tar.gz"},
        {"url": "https://[host/tool.tar.gz"},
        {"url": "https://host.invalid/a b.tar.gz"},
        {"url": "file:///tool.tar.gz"},
        {"url": "https://host.invalid/tool.rar"},
        {"sha512": "ab"},
        {"sha512": SHA512.upper()},
        {"member": "../tool"},
        {"member": "/tool"},
        {"max_bytes": 0},
    ],
    ids=str,
)
def test_a_download_that_cannot_be_verified_is_refused(fields: dict[str, Any]) -> None:
    """Plain HTTP of elsewhere, no whole SHA-512, a member outside."""
    with pytest.raises(ConfigurationError) as failure:
        Download(**{"url": URL, "sha512": SHA512, "member": "tool", **fields})
    assert failure.value.reason == "invalid_argument"


@pytest.mark.parametrize(
    "fields", [{"version": "../1"}, {"program": "a/b"}, {"downloads": {}}, {"downloads": {"X/Y": None}}], ids=str
)
def test_an_archive_that_no_sandbox_could_use_is_refused(fields: dict[str, Any]) -> None:
    """Names become parts of paths; without a platform there is nothing to install."""
    downloads = {"x86_64": Download(url=URL, sha512=SHA512, member="tool")}
    with pytest.raises(ConfigurationError):
        Archive(**{"version": "1", "program": "tool", "downloads": downloads, **fields})


def test_a_platform_with_its_c_library_goes_before_the_machine() -> None:
    """A program for any C library is named by the machine alone."""
    assert for_platform({"x86_64": 1, "x86_64-musl": 2}, "x86_64", "musl") == 2
    assert for_platform({"x86_64": 1, "x86_64-musl": 2}, "x86_64", "glibc") == 1
    assert for_platform({"x86_64": 1}, "riscv64", "glibc") is None


def test_everything_that_makes_it_another_program_makes_it_another_place() -> None:
    """So nothing has to be compared with what is installed; another URL of the same bytes is the same."""
    plain = npm(lock=lock())
    download = Download(url=URL, sha512=SHA512, member="tool")
    archive = Archive(version="1", program="tool", downloads={"x86_64": download})
    others: list[Tool] = [
        plain,
        replace(plain, lock=lock(integrity="sha512-BBBB")),
        replace(plain, lock=""),
        replace(plain, allow_scripts=True),
        replace(plain, commands={"x86_64": ["tool/native"]}),
        archive,
        replace(archive, downloads={"x86_64": replace(download, sha512="cd" * 64)}),
        replace(archive, downloads={"x86_64": replace(download, member="other")}),
    ]
    assert len({pinned_name("tool", each) for each in others}) == len(others)
    mirrored = replace(archive, downloads={"x86_64": replace(download, url="https://mirror.invalid/tool.tar.gz")})
    assert pinned_name("tool", mirrored) == pinned_name("tool", archive)


def test_the_manual_names_what_is_built_in() -> None:
    """docs/bootstrap.md: each tool with its version and package."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| npm `([^`]+)`", MANUAL.read_text(), re.MULTILINE)
    built_in = [(name, tool.version, tool.package) for name, tool in CATALOGUE.items() if isinstance(tool, NpmPackage)]
    assert rows == built_in


def test_the_catalogue_of_the_manual_is_one() -> None:
    """docs/bootstrap.md: its entries pass all checks and stand beside the built-in ones."""
    [block] = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(block, namespace)  # noqa: S102 - our own document
    assert [check_tool(name, namespace["catalogue"]).version for name in ("mycli", "othercli")] == ["1.4.2", "3.0.1"]
    assert set(CATALOGUE) < set(namespace["catalogue"])
