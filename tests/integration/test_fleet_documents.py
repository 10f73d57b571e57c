"""docs/orchestrators.md, many sandboxes: the examples run as they stand there."""

from __future__ import annotations

import asyncio
import re
import shutil
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from host_client import (
    ArchiveKey,
    ConversationContext,
    ConversationRecord,
    RestoreJob,
    TransportConversations,
    builtin_format,
    connect,
    open_transport,
)
from support.executor import dask_cluster
from support.recorded import DATA, recording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client import ConversationStore

ID = recording("kimi", "2.1.0/simple").id


def example(name: str) -> Any:
    """Run the block that defines a function, and return that."""
    page = (Path(__file__).parents[2] / "docs/orchestrators.md").read_text()
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if f"def {name}(" in one)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block, name, "exec"), names)  # noqa: S102 - our own document
    return names[name]


@pytest.fixture(scope="module", autouse=True)
def _tracked() -> None:
    """Start what spawned processes need before any test is looked at for what it leaves."""
    resource_tracker.ensure_running()


@pytest.fixture
def targets(tmp_path: Path) -> Sequence[str]:
    """Sandboxes that have nothing."""
    homes = [tmp_path / f"sandbox-{number}" for number in range(3)]
    for home in homes:
        home.mkdir()
    return [f"local:{home}" for home in homes]


async def captured(store: ConversationStore, tmp_path: Path) -> ConversationRecord:
    """Capture the recorded conversation."""
    await asyncio.to_thread(shutil.copytree, DATA / "kimi/2.1.0/simple/home", tmp_path / "source")
    async with connect(f"local:{tmp_path / 'source'}") as sandbox:
        return await store.capture(ID, ConversationContext(sandbox=sandbox, conversation_home=tmp_path))


@pytest.mark.anyio
async def test_the_example_of_one_process_works(tmp_path: Path, targets: Sequence[str]) -> None:
    """The conversation is in every target, and the dead one is told with its failure."""
    store = builtin_format("kimi")
    record = await captured(store, tmp_path)
    failed = await example("spread")(
        record, [*targets, "nowhere"], store, ConversationContext(conversation_home=tmp_path)
    )
    assert {target: error.reason for target, error in failed.items()} == {"nowhere": "invalid_target"}


def test_the_examples_of_workers_work(tmp_path: Path, targets: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes take the conversation from an archive whose key is in their environment; so do workers of Dask."""
    key = ArchiveKey.generate()
    monkeypatch.setenv("OUTPOST_ARCHIVE_KEY", key.text)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = f"file://{tmp_path}/archive"
    (tmp_path / "archive").mkdir()
    archive = TransportConversations(
        builtin_format("kimi"), transport=open_transport(url), namespace="team", key=key, cache=tmp_path / "own"
    )
    asyncio.run(captured(archive, tmp_path))
    ended = example("spread_by_processes")(url, ID, targets[:2])
    assert [one.outcome.unchanged for one in ended] == [False, False]
    jobs = [
        RestoreJob(
            target=target,
            format="kimi",
            conversation_id=ID,
            context=ConversationContext(conversation_home=tmp_path / "source"),
        )
        for target in targets[1:]
    ]
    with dask_cluster(tmp_path) as cluster:
        ended = example("spread_by_dask")(cluster.scheduler_address, jobs)
    assert [one.error for one in ended] == [None, None]
