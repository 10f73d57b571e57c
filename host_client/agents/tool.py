"""A tool that can be installed in a sandbox: which version, from where, and what it must be.

Nothing here installs: `host_client.turns.install` does. What an entry names is verified before it is used: packages
against the SHA-512 in their lock file, archives against their own.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from host_client.errors import ConfigurationError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_ARCHIVE_BYTES = 1 << 30
"""Most bytes of an archive, and of all that it unpacks to, unless its entry says otherwise."""

ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar.xz", ".zip")

_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_PACKAGE = re.compile(r"(?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*", re.ASCII)
_EXACT_VERSION = re.compile(r"\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?", re.ASCII)
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}", re.ASCII)
_PLATFORM = re.compile(r"[a-z0-9_]+(?:-(?:glibc|musl))?", re.ASCII)
_SHA512 = re.compile(r"[0-9a-f]{128}", re.ASCII)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SHOWN_CHARACTERS_COUNT = 140


@dataclass(frozen=True, kw_only=True, slots=True)
class NpmPackage:
    """A tool that npm installs in the sandbox.

    Attributes:
        package: Name of the package.
        version: Its exact version.
        program: Name of the program, as the package's `bin` has it.
        lock: Text of a `package-lock.json` of lockfile version 2 or 3 that names the package and its SHA-512, and
            those of all it needs; npm refuses whatever differs. Empty: npm takes the package and all it needs as the
            registry has them on that day.
        commands: What is run in place of `program`, by platform (`x86_64-glibc`, or `x86_64` for any C library): one
            path below `node_modules`, or an interpreter and a script. Empty: `.bin/<program>`.
        allow_scripts: Whether install scripts of the package, and of all it needs, run in the sandbox.
    """

    package: str
    version: str
    program: str
    lock: str = ""
    commands: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))
    allow_scripts: bool = False

    def __post_init__(self) -> None:
        """Refuse what npm would understand as something else.

        Raises:
            ConfigurationError: `invalid_argument`.
        """
        _check(_PACKAGE, self.package, "is no name of an npm package")
        _check(_EXACT_VERSION, self.version, "is no exact version: give one such as '1.2.3'")
        _check(_PROGRAM, self.program, "is no plain name of a program")
        for platform, words in self.commands.items():
            _check(_PLATFORM, platform, "is no platform: give one such as 'x86_64-glibc'")
            if len(words) not in (1, 2) or not all(map(_is_below, words)):
                raise _invalid(f"the command for {platform} is not one or two paths below node_modules")
        if self.lock:
            self._check_lock()

    def manifest(self) -> str:
        """Return the `package.json` that is installed, which is the one the lock was made for."""
        direct = {"dependencies": {self.package: self.version}}
        root = json.loads(self.lock)["packages"][""] if self.lock else direct
        return json.dumps({"private": True, **root})

    def _check_lock(self) -> None:
        try:
            packages = json.loads(self.lock)["packages"]
            wanted = packages[""]["dependencies"][self.package]
            locked = packages[f"node_modules/{self.package}"]
            unpinned = [
                path
                for path, entry in packages.items()
                if path and not entry.get("inBundle") and not str(entry.get("integrity", "")).startswith("sha512-")
            ]
            version = locked["version"]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _invalid(f"the lock of {self.package} is no package-lock.json that has it") from None
        if (wanted, version) != (self.version, self.version):
            raise _invalid(f"the lock of {self.package} is not for version {self.version}")
        if unpinned:
            raise _invalid(f"the lock of {self.package} has no SHA-512 of {printable(unpinned[0])}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Download:
    """One platform's archive, or the program itself.

    Attributes:
        url: Where it is: `https`, or `http` on this machine.
        sha512: SHA-512 of all of it, in lower-case hexadecimal digits.
        member: Path of the program in the archive, whose name ends in one of `ARCHIVE_SUFFIXES`; empty: what is at
            the URL is the program.
        max_bytes: Most bytes of the archive, and of all that it unpacks to.
    """

    url: str
    sha512: str
    member: str = ""
    max_bytes: int = MAX_ARCHIVE_BYTES

    def __post_init__(self) -> None:
        """Refuse what could not be downloaded or verified.

        Raises:
            ConfigurationError: `invalid_argument`.
        """
        if not is_allowed_url(self.url):
            raise _invalid("an archive's URL is https, or http on this machine, and has neither user nor password")
        _check(_SHA512, self.sha512, "is no SHA-512 in 128 lower-case hexadecimal digits")
        if self.member and not _is_below(self.member):
            raise _invalid(f"'{_shown(self.member)}' is no path in an archive")
        if self.member and not urlsplit(self.url).path.endswith(ARCHIVE_SUFFIXES):
            raise _invalid(f"an archive's name ends in one of {', '.join(ARCHIVE_SUFFIXES)}")
        if self.max_bytes <= 0:
            raise _invalid("max_bytes of an archive is at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """A tool that this host downloads, verifies and writes into the sandbox: one program without companions.

    Attributes:
        version: Its version, for people and for the place where it is installed.
        program: Name of the program.
        downloads: Where it comes from, by platform (`x86_64-glibc`, or `x86_64` for any C library).
    """

    version: str
    program: str
    downloads: Mapping[str, Download]

    def __post_init__(self) -> None:
        """Refuse an entry that no sandbox could use.

        Raises:
            ConfigurationError: `invalid_argument`.
        """
        _check(_VERSION, self.version, "is no version")
        _check(_PROGRAM, self.program, "is no plain name of a program")
        if not self.downloads:
            raise _invalid(f"no platform of {self.program} is named")
        for platform in self.downloads:
            _check(_PLATFORM, platform, "is no platform: give one such as 'x86_64-glibc'")


Tool = NpmPackage | Archive

T = TypeVar("T")


def for_platform(choices: Mapping[str, T], machine: str, c_library: str) -> T | None:
    """Return what is named for a machine and a C library, or else for the machine; None: nothing is."""
    exact = choices.get(f"{machine}-{c_library}")
    return choices.get(machine) if exact is None else exact


def is_allowed_url(url: str) -> bool:
    """Tell whether something may be downloaded from there."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return (
        url.isascii()
        and url.isprintable()
        and " " not in url
        and bool(parts.hostname)
        and parts.username is None
        and (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK))
    )


def _is_below(path: str) -> bool:
    return path.isprintable() and all(part not in ("", ".", "..") for part in path.split("/"))


def _check(pattern: re.Pattern[str], text: str, problem: str) -> None:
    if not pattern.fullmatch(text):
        raise _invalid(f"'{_shown(text)}' {problem}")


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError("invalid_argument", message)


def _shown(text: str) -> str:
    return printable(text)[:_SHOWN_CHARACTERS_COUNT]
