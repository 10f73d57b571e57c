"""The members of a transcript's line that tell what kind of line it is, in the formats of Claude Code and Codex.

The one rule: a line is read as `line` reads it, so any that is JSON has headers, and no member is decoded but these.
Claude Code (1.0.128 to 2.1.332) has them at the top, Codex (0.55.0 to 0.171.0) in `payload`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from host_client.session.line import decode_string, read_string, read_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from host_client.session.line import Value

_NONE = msgspec.Raw()
_NO_MEMBERS: Mapping[str, str | None] = {}


class Header(NamedTuple):
    """What one value of a line says about itself; what is missing or no text is None.

    Attributes:
        kind: `type`, or `type/payload.type`.
        session_ids: `sessionId`, and ids of a Codex session and of the root of its threads.
        directory: `cwd`, or else `payload.cwd`.
        uuid: Name of the record.
        parent: Name of the one it follows.
        has_ordinal: Whether it has a number in its rollout.
        is_paginated: Whether it says that all lines of its rollout have one.
    """

    kind: str | None
    session_ids: tuple[str, ...]
    directory: str | None
    uuid: str | None
    parent: str | None
    has_ordinal: bool
    is_paginated: bool


class _Top(msgspec.Struct):
    type: msgspec.Raw = _NONE
    cwd: msgspec.Raw = _NONE
    sessionId: msgspec.Raw = _NONE  # noqa: N815 - a name of the format
    uuid: msgspec.Raw = _NONE
    parentUuid: msgspec.Raw = _NONE  # noqa: N815 - a name of the format
    ordinal: msgspec.Raw = _NONE
    payload: msgspec.Raw = _NONE


class _Payload(msgspec.Struct):
    type: msgspec.Raw = _NONE
    cwd: msgspec.Raw = _NONE
    id: msgspec.Raw = _NONE
    session_id: msgspec.Raw = _NONE
    history_mode: msgspec.Raw = _NONE


_quick_top = msgspec.json.Decoder(_Top).decode
_quick_payload = msgspec.json.Decoder(_Payload).decode


def read_headers(line: bytes | bytearray) -> Sequence[Header]:
    """Return the header of each value of a line; none when it is not JSON."""
    try:
        top = _quick_top(line)
    except (msgspec.DecodeError, RecursionError):
        return [_walked(line, value) for value in read_values(line)]
    payload = _NO_MEMBERS
    if bytes(memoryview(top.payload)[:1]) == b"{":
        payload = _members(_quick_payload(top.payload))
    return [_header(_members(top), payload)]


def _members(struct: _Top | _Payload) -> Mapping[str, str | None]:
    """Return the members that are there, without `payload`."""
    found: dict[str, str | None] = {}
    for name in struct.__struct_fields__:
        raw: msgspec.Raw = getattr(struct, name)
        if name != "payload" and raw is not _NONE:
            text = bytes(raw)
            found[name] = decode_string(text) if text.startswith(b'"') else None
    return found


def _walked(line: bytes | bytearray, value: Value) -> Header:
    top, payload = (
        {name.decode(): read_string(line, at) for name, at in members.items()} for members in (value.top, value.payload)
    )
    return _header(top, payload)


def _header(top: Mapping[str, str | None], payload: Mapping[str, str | None]) -> Header:
    kind, inner = top.get("type"), payload.get("type")
    session_ids = [top.get("sessionId")]
    if kind == "session_meta":
        session_ids += [payload.get("id"), payload.get("session_id")]
    return Header(
        f"{kind}/{inner}" if kind and inner else kind,
        tuple(dict.fromkeys(found for found in session_ids if found)),
        top.get("cwd") if top.get("cwd") is not None else payload.get("cwd"),
        top.get("uuid"),
        top.get("parentUuid"),
        "ordinal" in top,
        payload.get("history_mode") == "paginated",
    )
