"""The one program of an archive: it alone is taken, and only when there is no doubt which it is."""

from __future__ import annotations

import io
import tarfile
import warnings
import zipfile
from typing import TYPE_CHECKING

import pytest

from host_client.agents.tool import Download
from host_client.errors import ProcessError
from host_client.turns.install_unpack import unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = b"#!/bin/sh\necho tool\n" * 1000
MEMBER = "pkg/bin/tool"


def tarred(kind: str, members: Sequence[tuple[str, bytes | str]]) -> bytes:
    """Make a tar archive of files, given as bytes, and of symbolic links, given as text."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=f"w:{kind}") as archive:  # type: ignore[call-overload]
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def zipped(members: Sequence[tuple[str, bytes | str]]) -> bytes:
    """Make a zip archive of the same."""
    made = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(made, "w") as archive:  # of a name it has twice
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if isinstance(content, str) else 0o100644) << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def unpacked(suffix: str, archive: bytes, max_bytes: int = 1 << 24) -> bytes:
    """Take the program out."""
    source = Download(
        url=f"https://host.invalid/tool{suffix}?key=1", sha512="0" * 128, member=MEMBER, max_bytes=max_bytes
    )
    program = io.BytesIO()
    unpack(source, io.BytesIO(archive), program)
    return program.read()


def made(suffix: str, members: Sequence[tuple[str, bytes | str]]) -> bytes:
    """Make an archive of that kind."""
    return zipped(members) if suffix == ".zip" else tarred(suffix.rpartition(".")[2].removeprefix("t"), members)


every_kind = pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".tar.xz", ".zip"])


@every_kind
def test_the_program_alone_is_taken(suffix: str) -> None:
    """Other members, whatever their names, are passed over."""
    others: list[tuple[str, bytes | str]] = [
        ("../../escape", b"x"),
        ("pkg/bin/tool2", b"y"),
        ("pkg/link", "/etc/passwd"),
    ]
    assert unpacked(suffix, made(suffix, [*others, (MEMBER, PROGRAM), ("pkg/README", b"z")])) == PROGRAM


@every_kind
def test_a_name_may_begin_with_a_dot(suffix: str) -> None:
    """`./pkg/bin/tool`, as tar writes it, is the same."""
    assert unpacked(suffix, made(suffix, [(f"./{MEMBER}", PROGRAM)])) == PROGRAM


@every_kind
def test_a_missing_program_is_refused(suffix: str) -> None:
    """Nothing is taken in its place."""
    with pytest.raises(ProcessError, match="pkg/bin/tool not at all"):
        unpacked(suffix, made(suffix, [("tool", PROGRAM)]))


@every_kind
def test_a_program_that_is_there_twice_is_refused(suffix: str) -> None:
    """Unpackers differ in which of the two they keep."""
    with pytest.raises(ProcessError, match="more than once"):
        unpacked(suffix, made(suffix, [(MEMBER, PROGRAM), ("other", b""), (MEMBER, b"second")]))


@every_kind
def test_a_program_that_is_a_link_is_refused(suffix: str) -> None:
    """What a link leads to was not promised."""
    with pytest.raises(ProcessError, match="something else than a file"):
        unpacked(suffix, made(suffix, [("target", PROGRAM), (MEMBER, "../../target")]))


@every_kind
def test_what_unpacks_to_more_than_may_be_is_refused(suffix: str) -> None:
    """A small archive can be a large program."""
    with pytest.raises(ProcessError, match="unpacks to more than 5000 bytes"):
        unpacked(suffix, made(suffix, [(MEMBER, bytes(1_000_000))]), max_bytes=5000)


@every_kind
def test_a_damaged_archive_is_refused(suffix: str) -> None:
    """Half an archive, and no archive at all, is told in words of ours."""
    whole = made(suffix, [("pkg/large", bytes(range(256)) * 100), (MEMBER, PROGRAM)])
    for broken in (whole[: len(whole) // 2], b"not an archive", b""):
        with pytest.raises(ProcessError) as failure:
            unpacked(suffix, broken)
        assert failure.value.reason == "install_failed"


def test_a_directory_of_that_name_is_refused() -> None:
    """A zip archive writes directories as names that end in a slash."""
    with pytest.raises(ProcessError, match="something else than a file"):
        unpacked(".zip", zipped([(f"{MEMBER}/", b"")]))
