"""What the documents show works as it stands there."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import host_client
from host_client import ConversationContext, connect
from support.recorded import DATA, recording

if TYPE_CHECKING:
    from host_client import SessionBundleConversations

ROOT = Path(__file__).parents[2]


def _example(document: str, tmp_path: Path) -> SessionBundleConversations:
    """Run the document's first Python block as a module of its own, so that hooks have source."""
    found = re.search(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert found
    module = tmp_path / "example.py"
    module.write_text(found[1])
    namespace: dict[str, object] = {"__name__": "example", "__file__": str(module)}
    exec(compile(found[1], str(module), "exec"), namespace)  # noqa: S102 - our own document
    store = namespace["store"]
    assert type(store).__name__ == "SessionBundleConversations"
    return store  # type: ignore[return-value]


@pytest.mark.anyio
async def test_the_profile_of_the_guide_moves_a_session(tmp_path: Path) -> None:
    """docs/profiles.md: the session arrives with the new cwd, without its lock file."""
    store = _example("docs/profiles.md", tmp_path)
    session = tmp_path / "a/.mycli/sessions/s-1"
    (session / "files").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (session / "session.json").write_text('{"id": "s-1", "cwd": "/old"}')
    (session / "events.jsonl").write_text('{"text": "hi"}\n')
    (session / "files/notes.md").write_text("notes")
    (session / "run.lock").touch()
    async with connect(f"local:{tmp_path / 'a'}") as a, connect(f"local:{tmp_path / 'b'}") as b:
        record = await store.capture("s-1", ConversationContext(sandbox=a, conversation_home=tmp_path))
        await store.restore(record, ConversationContext(sandbox=b, conversation_home=tmp_path))
    placed = tmp_path / "b/.mycli/sessions/s-1"
    assert sorted(str(path.relative_to(placed)) for path in placed.rglob("*")) == [
        "events.jsonl",
        "files",
        "files/notes.md",
        "session.json",
    ]
    assert (placed / "session.json").read_text() == f'{{"id": "s-1", "cwd": "{tmp_path / "b"}"}}'


def test_the_example_of_the_library_works(tmp_path: Path) -> None:
    """docs/library.md: captured, restored, located, relayed and uploaded; the failure is the one told."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs/library.md").read_text(), re.DOTALL)
    assert found
    for name in ("b", "c", "repository"):
        (tmp_path / name).mkdir()
    shutil.copytree(DATA / "kimi/2.1.0/simple/home", tmp_path / "a")
    names: dict[str, Any] = {f"home_{name}": tmp_path / name for name in "abc"}
    names |= {"repository": tmp_path / "repository", "conversation_id": recording("kimi", "2.1.0/simple").id}
    exec(found[1], names)  # noqa: S102 - our own document
    assert names["outcome"].target.is_relative_to(tmp_path / "b")
    assert names["again"].unchanged
    assert [delivery.error for delivery in names["result"].outcomes] == [None, None]
    assert (tmp_path / "b/copy/.outpost/conversations/kimi").is_dir()
    assert names["reason"] == "not_found"


def test_the_example_of_redaction_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/redaction.md: every rule has its hit, and the kept copy has none of the secrets."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs/redaction.md").read_text(), re.DOTALL)
    assert found
    (tmp_path / "repository").mkdir()
    shutil.copytree(DATA / "kimi/2.1.0/simple/home", tmp_path / "a")
    recorded = recording("kimi", "2.1.0/simple")
    (wire,) = (tmp_path / "a").glob(f"**/{recorded.id}/agents/main/wire.jsonl")
    with wire.open("a") as file:
        file.write('{"out":"key \\u0061bc-123 bob@example.com db.internal"}\n')
    monkeypatch.setenv("API_KEY", "abc-123")
    names: dict[str, Any] = {"home": tmp_path / "a", "repository": tmp_path / "repository"}
    names["conversation_id"] = recorded.id
    exec(found[1], names)  # noqa: S102 - our own document
    assert names["counts"] == {"api-key": 1, "mail": 1, "host": 1}
    kept = {file["path"]: b64decode(file["data"]) for file in json.loads(names["record"].path.read_bytes())["files"]}
    line = kept["agents/main/wire.jsonl"].splitlines()[-1]
    assert line == b'{"out":"key [redacted:api-key] [redacted:mail] db.example"}'


def test_the_library_page_names_the_public_surface() -> None:
    """docs/library.md: every name that it shows as ours is exported, and every rule of a context is in it."""
    page = (ROOT / "docs/library.md").read_text()
    table = page[page.index("## Names") : page.index("## Failures")]
    for row in table.splitlines()[3:]:
        for name in re.findall(r"`([A-Za-z]+)(?=[(`])", row.split("|")[1] if "|" in row else ""):
            assert hasattr(host_client, name), name
    for field in dataclasses.fields(ConversationContext):
        assert f"`{field.name}`" in table


def test_the_demo_runs(tmp_path: Path) -> None:
    """`make demo`: both formats moved, digests equal, cwd relocated, a recovery made and undone."""
    ended = subprocess.run(
        [sys.executable, str(ROOT / "docs/demo.py")],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(": equal") == 2
    assert ended.stdout.count("cwd /home/dev/demo-app\n") == 2
    assert ended.stdout.count("workspace b\n") == 2
    assert ended.stdout.count("is back in") == 2
    assert list(tmp_path.iterdir()) == []
