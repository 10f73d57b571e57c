"""The checks of a bundle that is not placed anywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.bundle_check import BundleCheck
from sandbox_agent.core.recovery import list_recovery
from sandbox_api.errors import (
    SessionError,
)
from sandbox_api.manifest import bundle_digest
from support.restoring import (
    entries_of,
    picture,
    restoring_sandbox,
)
from support.sandbox import FLAT, ID, place

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sandbox_agent.core.sandbox import Sandbox

CHECKED = replace(
    FLAT,
    validate="lambda files, id: None if files.text('state.json').startswith('good') else 'bad ' + id",
)


def _check(held: Sandbox, files: Mapping[str, bytes], sent: bytes, profile: object = CHECKED) -> None:
    entries = entries_of(files)
    with BundleCheck(held, profile, ID, entries, bundle_digest(entries), limits=held.limits) as check:  # type: ignore[arg-type]
        assert check.begin() == [True] * len(entries)
        for start in range(0, len(sent), 3):
            check.feed(sent[start : start + 3])
        check.finish()


@pytest.mark.parametrize("profile", [CHECKED, FLAT])
def test_bundle_check(tmp_path: Path, profile: object) -> None:
    """A bundle that is not placed gets the same checks, and leaves nothing."""
    with restoring_sandbox(tmp_path) as held:
        before = picture(tmp_path)
        _check(held, {"a": b"", "state.json": b"good one", "z": b""}, b"good one", profile)
        for files, sent, reason in (
            ({"state.json": b"good one"}, b"good two", "digest_mismatch"),
            ({"state.json": b"good one"}, b"good", "incomplete"),
            ({"state.json": b"good one"}, b"good one more", "protocol"),
            ({"other": b""}, b"", "missing_required"),
        ):
            with pytest.raises(SessionError) as caught:
                _check(held, files, sent, profile)
            assert caught.value.reason == reason
        assert picture(tmp_path) == before


def test_bundle_check_asks_the_format(tmp_path: Path) -> None:
    """The validate hook sees each file by itself."""
    with restoring_sandbox(tmp_path) as held:
        with pytest.raises(SessionError) as caught:
            _check(held, {"a": b"good", "state.json": b"bad"}, b"goodbad")
        assert caught.value.reason == "invalid"
        assert list_recovery(held, place()) == []
