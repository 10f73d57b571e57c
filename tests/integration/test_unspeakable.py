"""What the contract cannot say is refused before anything is sent: no error of protobuf leaves the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from host_client import ConfigurationError, ConversationContext, Limits, Place, connect
from support.conversation import ID, make_session, store

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

NOT_TEXT = {"MYCLI_HOME": "/\udcff"}


async def test_numbers_out_of_range_and_texts_that_are_none(tmp_path: Path) -> None:
    """Each is `configuration`/`invalid_argument`, and the connection goes on to serve."""
    tested = store()
    make_session(tmp_path / ".mycli")
    async with connect(f"local:{tmp_path}") as sandbox:
        context = ConversationContext(sandbox=sandbox, repository=tmp_path)
        record = await tested.capture(ID, context)
        bundles = sandbox.bundles

        async def listed() -> None:
            async for _ in bundles.list(tested.profile, variables=NOT_TEXT):
                pass

        calls = [
            listed(),
            bundles.prune_recovery(tested.profile, keep_count=1 << 70),
            bundles.prune_recovery(tested.profile, older_than_seconds=-1),
            bundles.undo_restore(Place(tested.profile, ID, NOT_TEXT)),
            sandbox.diagnose([tested.profile], NOT_TEXT),
            tested.restore(record, ConversationContext(sandbox=sandbox, repository=tmp_path, owner=(1 << 40, 1))),
            tested.capture(ID, ConversationContext(sandbox=sandbox, repository=tmp_path, variables=NOT_TEXT)),
        ]
        for call in calls:
            with pytest.raises(ConfigurationError) as caught:
                await call
            assert caught.value.reason == "invalid_argument"
        await tested.restore(record, context)


@pytest.mark.parametrize("number", [0, -1, 1 << 64])
def test_limits_are_numbers_of_the_contract(number: int) -> None:
    """What no message can carry is no limit."""
    for limits in ({"max_bytes": number}, {"max_files": number}):
        with pytest.raises(ConfigurationError) as caught:
            Limits(**limits)
        assert caught.value.reason == "invalid_argument"
