"""Read a bundle file's structure: where each content lies, without holding any.

The one rule: a file that breaks any rule of bundle JSON v1 is refused, with the rule and the place; nothing is
repaired.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from host_client.session import content
from host_client.session.content import NO_QUANTUM
from host_client.session.scanner import JsonError, Scanner, Span
from sandbox_api.errors import Offender, SessionError, printable
from sandbox_api.names import order_problem, path_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from sandbox_api.limits import Limits
    from sandbox_api.profile import Profile

VERSION = 1

# The spelling of our own files and of JSON.stringify; any other is read member by member.
_USUAL_HEAD = re.compile(rb'\{"path":"([^"\\\x00-\x1f]{1,4096}+)","data":(?=")')
_USUAL_TAIL = re.compile(rb'(?:,"sha256":"([0-9a-f]{64})")?\}')
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Item(NamedTuple):
    """One file of a bundle as it stands in the JSON.

    Attributes:
        path: Session-relative path.
        size: Size of the content in bytes.
        sha256: Promised digest; empty when the file promises none.
        span: Where the base64 text lies.
        copyable: Where the whole object lies, when it is spelled as we would write it, digest included; else None.
    """

    path: bytes
    size: int
    sha256: bytes
    span: Span
    copyable: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Index:
    """What a bundle file says of itself; items in byte order of their paths."""

    source: str
    digest: bytes
    items: tuple[Item, ...]


class BundleIndexer:
    """Read the index of one open bundle file.

    Args:
        fd: Descriptor of the file; stays the caller's.
        size_bytes: Size of the file.
        profile: Whose session it must be.
        conversation_id: The id it must have.
        limits: Limits it must keep.
    """

    def __init__(self, fd: int, size_bytes: int, profile: Profile, conversation_id: str, limits: Limits) -> None:
        self._fd = fd
        self._scanner = Scanner(fd, size_bytes)
        self._profile = profile
        self._conversation_id = conversation_id
        self._limits = limits
        self._items: list[Item] = []
        self._bytes_count = 0
        self._counted = 0

    def read(self) -> Index:
        """Return the index after all checks that need no content.

        Raises:
            JsonError: the text breaks a rule of JSON or of the bundle's shape.
            SessionError: `corrupt`, `unsafe_name`, `missing_required`, `empty`.
            LimitError: `max_files`, `max_bytes`.
        """
        texts: dict[str, str] = {}
        seen: set[str] = set()
        for name in self._scanner.members():
            seen.add(name)
            if name == "version":
                if self._scanner.number() != VERSION:
                    raise self._scanner.error(f"the version is not {VERSION}")
            elif name in ("format", "id", "source", "digest"):
                texts[name] = self._scanner.text()
            elif name == "files":
                self._read_files()
            else:
                self._scanner.skip()
        self._scanner.finish()
        if missing := [name for name in ("version", "format", "id", "source", "files") if name not in seen]:
            raise self._scanner.error(f"the bundle has no {missing[0]!r}")
        self._check_identity(texts)
        items = tuple(sorted(self._items, key=lambda item: item.path))
        self._check_items(items)
        return Index(texts["source"], self._sha256(texts["digest"]) if "digest" in texts else b"", items)

    def _read_files(self) -> None:
        for _ in self._scanner.elements():
            if not self._read_usual():
                self._items.append(self._read_members())
            self._bytes_count += sum(item.size for item in self._items[self._counted :])
            self._counted = len(self._items)
            self._limits.check(bytes_count=self._bytes_count, files_count=self._counted)

    def _read_usual(self) -> bool:
        """Read files in the usual spelling as far as the window has them whole; tell whether there was any.

        The one tight loop of reading: a bundle of thousands of small files spends its time here.
        """
        window, at, limit = self._scanner.ahead()
        base = self._scanner.offset - at
        reached = None
        while head := _USUAL_HEAD.match(window, at):
            begin = head.end() + 1
            end = window.find(b'"', begin, limit)
            tail = _USUAL_TAIL.match(window, end + 1) if end >= 0 else None
            if tail is None:
                break
            if (end - begin) % 4:
                raise JsonError(NO_QUANTUM, base + begin)
            size = (end - begin) // 4 * 3 - window.count(b"=", max(begin, end - 2), end)
            sha256 = bytes.fromhex(tail[1].decode()) if tail[1] else b""
            reached = tail.end()
            span = Span(base + begin, base + end, b"", escaped=False)
            self._items.append(Item(head[1], size, sha256, span, (base + at, base + reached) if sha256 else None))
            if not window.startswith(b",", reached):
                break
            at = reached + 1  # the comma is consumed with the file that follows, or by `elements`
        if reached is not None:
            self._scanner.advance(reached)
        return reached is not None

    def _read_members(self) -> Item:
        scanner = self._scanner
        path, span, sha256 = None, None, b""
        for name in scanner.members():
            if name == "path":
                path = scanner.text().encode("utf-8", "surrogatepass")
            elif name == "data":
                span = scanner.span()
            elif name == "sha256":
                sha256 = self._sha256(scanner.text())
            else:
                scanner.skip()
        if path is None or span is None:
            raise scanner.error(f"file {len(self._items)} has no {'path' if path is None else 'data'!r}")
        return Item(path, content.measure(self._fd, span), sha256, span, None)

    def _sha256(self, text: str) -> bytes:
        if not _SHA256.fullmatch(text):
            raise self._scanner.error("a digest is not 64 lower-case hex digits")
        return bytes.fromhex(text)

    def _check_identity(self, texts: dict[str, str]) -> None:
        for name, wanted in (("format", self._profile.format), ("id", self._conversation_id)):
            if texts[name] != wanted:
                raise SessionError(
                    "corrupt",
                    f"its {name} is {printable(texts[name][:140])!r} and not {wanted!r}",
                    facts={"check": name},
                )

    def _check_items(self, items: tuple[Item, ...]) -> None:
        if not items:
            raise SessionError("corrupt", "it holds no file", facts={"check": "empty"})
        paths = [item.path for item in items]
        _refuse("unsafe_name", "paths are not usable", paths, path_problem)
        if found := order_problem(paths):
            path, problem = found
            raise SessionError(
                "corrupt", f"the path {printable(path)!r} {problem}", offenders=[Offender(printable(path), problem)]
            )
        check_selection(paths, self._profile, "corrupt")


def check_selection(
    paths: Sequence[bytes], profile: Profile, reason: str, known: Container[bytes] = frozenset()
) -> None:
    """Refuse paths that are not what a capture of a session of that format takes.

    Args:
        paths: All paths of a bundle, each usable in itself.
        profile: The format.
        reason: What a path that is not selected is refused with.
        known: Paths that were checked before.

    Raises:
        SessionError: `reason`, `missing_required`.
    """
    selected: dict[str, bool] = {}

    def problem_of(path: bytes) -> str | None:
        """Tell whether a capture would take the file; what holds for a directory is asked once."""
        text = path.decode()
        cut = text.find("/")
        while cut >= 0:
            directory = text[:cut]
            if directory not in selected:
                selected[directory] = profile.selects(directory)
            if not selected[directory]:
                return "is not selected"
            cut = text.find("/", cut + 1)
        return None if profile.selects(text) else "is not selected"

    fresh = [path for path in paths if path not in known]
    _refuse(reason, "files are not selected by the format's profile", fresh, problem_of)
    there = set(paths)
    missing = [Offender(path, "is missing") for path in profile.required if path.encode() not in there]
    if missing:
        raise SessionError("missing_required", f"{len(missing)} required file(s) are missing", offenders=missing)


def _refuse(reason: str, message: str, paths: Iterable[bytes], problem_of: Callable[[bytes], str | None]) -> None:
    """Refuse a bundle, naming all paths that have a problem."""
    offenders = [Offender(printable(path), problem) for path in paths if (problem := problem_of(path))]
    if offenders:
        raise SessionError(reason, f"{len(offenders)} {message}", offenders=offenders)
