"""`outpost archive`: conversations in a store by command, from sandbox to sandbox, and what is told of them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from host_client import read_message_file
from host_client.cli.__main__ import main
from host_client.cli.conversation import message_document
from support.recorded import DATA

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., dict[str, Any]]

CODEX, CODEX_ID = "codex/0.171.0/fork", "01a22be9-6e94-7931-90f0-7b34fd12f652"
KIMI = "kimi/2.1.0/multiturn"
SAID = {
    "timestamp": "2026-11-30T11:00:00.000Z",
    "ordinal": 46,
    "type": "response_item",
    "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and then"}]},
}


class Scene:
    """Two sandboxes of this machine, the first with a recorded home, and a store."""

    def __init__(self, folder: Path, recorded: str) -> None:
        self.homes = [folder / name for name in "ab"]
        self.works = [folder / f"work {name}" for name in "ab"]
        self.store_path = folder / "store"
        shutil.copytree(DATA / recorded / "home", self.homes[0], copy_function=shutil.copyfile)
        for made in (self.homes[1], *self.works, self.store_path):
            made.mkdir()
        self.a, self.b = (f"local:{home},{work}" for home, work in zip(self.homes, self.works, strict=True))
        self.format = recorded.partition("/")[0]
        self.id = json.loads((DATA / recorded / "expected.json").read_text())["session_id"]

    def messages(self, home: Path) -> list[dict[str, object]]:
        """Return what was said in the conversation, as a sandbox has it."""
        pattern = {"codex": f"**/rollout-*{self.id}.jsonl", "kimi": f"**/{self.id}/agents/main/wire.jsonl"}[self.format]
        (found,) = home.glob(pattern)
        return [message_document(message) for message in read_message_file(self.format, found)]

    @property
    def rollout(self) -> Path:
        """The transcript of Codex in the first sandbox."""
        (found,) = self.homes[0].glob(f".codex/sessions/**/*{CODEX_ID}.jsonl")
        return found

    def go_on(self) -> None:
        """Have something said in the first sandbox's conversation of Codex."""
        with self.rollout.open("a") as file:
            file.write(json.dumps(SAID) + "\n")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a scene with a conversation of Codex; the store, the namespace and the cache are in the environment."""
    return prepared(tmp_path, monkeypatch, CODEX)


def prepared(folder: Path, monkeypatch: pytest.MonkeyPatch, recorded: str) -> Scene:
    """Return a scene whose store the environment names."""
    made = Scene(folder, recorded)
    monkeypatch.setenv("OUTPOST_STORE", f"file://{made.store_path}")
    monkeypatch.setenv("OUTPOST_NAMESPACE", "team")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command about archives with `--json`; check its exit status and return its document."""

    def run(*words: object, status: int = 0) -> dict[str, Any]:
        assert main(["archive", *map(str, words), "--json"]) == status, capsys.readouterr()
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return run


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run a command about archives for people and return what it printed on both streams."""

    def told(*words: object, status: int = 0) -> tuple[str, str]:
        assert main(["archive", *map(str, words)]) == status, capsys.readouterr()
        return capsys.readouterr()

    return told


@pytest.mark.parametrize("recorded", [CODEX, KIMI])
def test_a_conversation_goes_through_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, recorded: str
) -> None:
    """Pushed, shown and pulled: what arrives is what was there, and the CLI resumes it by the command that is told."""
    scene = prepared(tmp_path, monkeypatch, recorded)
    pushed = run("push", scene.a, scene.format, scene.id)
    assert (pushed["id"], pushed["archive_id"], pushed["unchanged"]) == (scene.id, scene.id, False)
    assert (pushed["store"], pushed["namespace"]) == (f"file://{scene.store_path}", "team")
    again = run("push", scene.a, scene.format, scene.id)
    assert (again["unchanged"], again["snapshot"]) == (True, pushed["snapshot"])
    pulled = run("pull", scene.b, scene.format, scene.id)
    assert (pulled["snapshot"], pulled["unchanged"]) == (pushed["snapshot"], False)
    assert scene.id in pulled["resume"]
    before, after = (scene.messages(home) for home in scene.homes)
    assert before
    assert after == before
    assert run("pull", scene.b, scene.format, scene.id)["unchanged"]


def test_snapshots_are_listed_newest_first(scene: Scene, run: Run, told: Callable[..., tuple[str, str]]) -> None:
    """Each push of something new is a snapshot after the one before, and costs what is new."""
    first = run("push", scene.a, "codex", CODEX_ID)["snapshot"]
    scene.go_on()
    second = run("push", scene.a, "codex", CODEX_ID)["snapshot"]
    document = run("log", "codex", CODEX_ID)
    assert (document["format"], document["id"]) == ("codex", CODEX_ID)
    newest, oldest = document["snapshots"]
    assert (newest["snapshot"], newest["parent"]) == (second, first)
    assert (oldest["snapshot"], oldest["parent"], oldest["origin"], oldest["diverged"]) == (first, None, None, False)
    assert newest["bytes"] - oldest["bytes"] == len(json.dumps(SAID)) + 1
    assert 0 < newest["added_bytes"] < 64 << 10
    lines = told("log", "codex", CODEX_ID)[0].splitlines()
    assert [line[:32] for line in lines] == [second, first]
    assert lines[0].endswith(f"after {first[:12]}")
    assert lines[1].endswith("first")


def test_an_older_snapshot_is_shown_and_pulled(
    scene: Scene, run: Run, told: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    """By its id or how that begins; without one it is the newest. A page can be made of it, and parts be left out."""
    before = [message_document(message) for message in read_message_file("codex", scene.rollout)]
    first = run("push", scene.a, "codex", CODEX_ID)["snapshot"]
    scene.go_on()
    second = run("push", scene.a, "codex", CODEX_ID)["snapshot"]
    shown = run("show", "codex", CODEX_ID, "--snapshot", first, "--reasoning")
    assert (shown["id"], shown["snapshot"], shown["namespace"]) == (CODEX_ID, first, "team")
    assert shown["messages"] == before
    newest = run("show", "codex", CODEX_ID, "--last", 1)
    assert newest["snapshot"] == second
    assert newest["messages"][0]["parts"] == [{"type": "text", "text": "and then"}]
    page = tmp_path / "page.html"
    told("show", "codex", CODEX_ID, "--html", page)
    assert "and then" in page.read_text()
    assert second in page.read_text()
    assert "  and then" in told("show", "codex", CODEX_ID)[0]
    assert run("pull", scene.b, "codex", CODEX_ID, "--snapshot", first)["snapshot"] == first
    assert run("show", "codex", CODEX_ID, "--snapshot", "ffff", status=10)["error"]["reason"] == "not_found"
    assert run("pull", scene.b, "codex", CODEX_ID, "--snapshot", "", status=0)["snapshot"] == second


def test_what_does_not_go_on_is_refused_unless_forced(
    scene: Scene, run: Run, told: Callable[..., tuple[str, str]]
) -> None:
    """An older state is `behind`; with force it is put in front, and the log says so."""
    original = scene.rollout.read_bytes()
    scene.go_on()
    run("push", scene.a, "codex", CODEX_ID)
    scene.rollout.write_bytes(original)
    error = run("push", scene.a, "codex", CODEX_ID, status=13)["error"]
    assert (error["code"], error["reason"]) == ("conflict", "behind")
    assert error["hint"]
    run("push", scene.a, "codex", CODEX_ID, "--force")
    assert [one["diverged"] for one in run("log", "codex", CODEX_ID)["snapshots"]] == [True, False]
    assert "diverged" in told("log", "codex", CODEX_ID)[0].splitlines()[0]


def test_a_fork_has_its_own_line(scene: Scene, run: Run, told: Callable[..., tuple[str, str]]) -> None:
    """It begins with a snapshot of the other, is pulled by its own id, and resumed by the CLI's."""
    first = run("push", scene.a, "codex", CODEX_ID)["snapshot"]
    made = run("fork", "codex", CODEX_ID, "another-line", "--snapshot", first)
    assert (made["id"], made["origin"]) == ("another-line", {"id": CODEX_ID, "snapshot": first})
    assert run("fork", "codex", CODEX_ID, "another-line", status=13)["error"]["reason"] == "exists"
    pulled = run("pull", scene.b, "codex", "another-line")
    assert (pulled["id"], pulled["archive_id"]) == (CODEX_ID, "another-line")
    assert CODEX_ID in pulled["resume"]
    listed = {one["id"]: one for one in run("list")["conversations"]}
    assert set(listed) == {CODEX_ID, "another-line"}
    assert listed["another-line"]["native_id"] == CODEX_ID
    assert f"is {CODEX_ID}" in told("list")[0]
    assert f"forked from {CODEX_ID}" in told("log", "codex", "another-line")[0]
    assert told("fork", "codex", CODEX_ID, "third")[0] == f"forked {CODEX_ID} at {first} as third\n"


def test_verify_names_all_that_is_wrong(scene: Scene, run: Run, told: Callable[..., tuple[str, str]]) -> None:
    """A whole archive is told so; of a damaged one every object and every snapshot that is hurt; status 10."""
    snapshot = run("push", scene.a, "codex", CODEX_ID)["snapshot"]
    document = run("verify")
    assert (document["whole"], document["findings"], document["snapshot_count"]) == (True, [], 1)
    assert document["bytes"] > 70_000
    assert told("verify", "codex", CODEX_ID)[0].endswith("whole: nothing is wrong\n")
    data = [path for path in (scene.store_path / "data").rglob("*") if path.is_file()]
    for path in data:
        path.unlink()
    document = run("verify", status=10)
    assert not document["whole"]
    assert len(document["findings"]) == len(data)
    for finding in document["findings"]:
        assert finding["finding"] == "missing_object"
        assert finding["snapshots"] == [{"format": "codex", "id": CODEX_ID, "snapshot": snapshot}]
    assert document["conversations"][0]["hurt"] == [snapshot]
    out, _ = told("verify", "codex", status=10)
    assert out.count("finding: missing_object") == len(data)
    assert f"hurts codex {CODEX_ID}, snapshot {snapshot}" in out
    assert run("verify", "codex", "unknown-id", status=10)["error"]["reason"] == "not_found"
    assert run("verify", "kimi", status=10)["error"]["reason"] == "not_found"
    error = run("pull", scene.b, "codex", CODEX_ID, "--cache", scene.store_path.parent / "new cache", status=10)[
        "error"
    ]
    assert (error["reason"], "push --force" in error["hint"]) == ("missing_object", True)


def test_verify_tells_of_a_lost_index(scene: Scene, run: Run, told: Callable[..., tuple[str, str]]) -> None:
    """Snapshots without an index are no finding, since a push may be under way, and told with what it may be else."""
    run("push", scene.a, "codex", CODEX_ID)
    (index,) = scene.store_path.rglob("index!")
    index.unlink()
    assert run("verify")["unindexed"] == [{"format": "codex", "id": CODEX_ID}]
    out, _ = told("verify", "codex")
    assert f"unindexed: codex {CODEX_ID} has snapshots and no index" in out
    assert out.endswith("whole: nothing else is wrong\n")
    assert "the index was lost" in out


def test_verify_without_the_key_tells_once_to_give_it(
    scene: Scene, run: Run, told: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    """Every conversation is a finding that names its object once, and the hint comes once, after all of them."""
    run("keygen", tmp_path / "key")
    run("push", scene.a, "codex", CODEX_ID, "--key-file", tmp_path / "key")
    run("fork", "codex", CODEX_ID, "another", "--key-file", tmp_path / "key")
    findings = run("verify", status=10)["findings"]
    assert [(one["finding"], "--key-file" in one["hint"]) for one in findings] == [("wrong_key", True)] * 2
    out, _ = told("verify", status=10)
    assert [out.count(one["key"]) for one in findings] == [1, 1]
    assert out.count("hint: ") == 1


def test_prune_tells_what_goes(scene: Scene, run: Run, told: Callable[..., tuple[str, str]]) -> None:
    """A dry run changes nothing; a rule is needed; what is young by the rule stays."""
    snapshots = []
    for _ in range(3):
        snapshots.append(run("push", scene.a, "codex", CODEX_ID)["snapshot"])
        scene.go_on()
    error = run("prune", status=12)["error"]
    assert (error["reason"], "--keep-last" in error["hint"]) == ("invalid_argument", True)
    told("prune", "--keep-last", "1", "--grace", "soon", status=2)
    dry = run("prune", "--keep-last", 1, "--grace", 0, "--dry-run")
    named = [{"format": "codex", "id": CODEX_ID, "snapshot": one} for one in sorted(snapshots[:2])]
    assert (dry["dry_run"], dry["removed"], dry["kept_count"]) == (True, named, 1)
    assert "would be removed: codex" in told("prune", "--keep-last", 1, "--dry-run")[0]
    assert run("prune", "--keep-last", 1, "--younger-than", "30d")["removed"] == []
    assert run("prune", "--garbage-only", "--grace", "0s")["kept_count"] == 3
    done = run("prune", "--keep-last", 1, "--grace", 0)
    assert (done["dry_run"], done["removed"]) == (False, named)
    counts = ("marked_count", "marked_bytes", "removed_count", "removed_bytes")
    assert [done[name] for name in counts] == [dry[name] for name in counts]
    assert done["removed_count"] >= 2
    assert [one["snapshot"] for one in run("log", "codex", CODEX_ID)["snapshots"]] == snapshots[2:]
    assert run("verify")["whole"]


def test_stats_measure_the_namespace(scene: Scene, run: Run, told: Callable[..., tuple[str, str]]) -> None:
    """What snapshots hold and what they take, in all and for each conversation."""
    pushed = run("push", scene.a, "codex", CODEX_ID)
    found = run("stats")
    assert found["logical_bytes"] == found["newest_bytes"] == pushed["bytes"]
    assert 0 < found["stored_bytes"] < pushed["bytes"]
    assert found["ratio"] > 1
    assert found["conversations"][0]["id"] == CODEX_ID
    assert "stored" in told("stats")[0]
    run("push", scene.a, "codex", CODEX_ID, "--namespace", "plain", "--no-compress")
    assert run("stats", "--namespace", "plain")["stored_bytes"] > pushed["bytes"]
    assert told("list", "--namespace", "nothing here", status=12)[1].startswith("outpost: configuration/invalid_key")
    assert told("list", "--namespace", "empty")[0] == "no conversations\n"
    assert "ratio 0.0" in told("stats", "--namespace", "empty")[0]
    assert "is it the right store and namespace?" in told("verify", "--namespace", "empty")[0]


def test_a_key_encrypts(
    scene: Scene, run: Run, told: Callable[..., tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key is made once, for its owner alone; with it, from file or environment, an archive is read, else not."""
    key = tmp_path / "key"
    key_id = run("keygen", key)["key_id"]
    assert key.stat().st_mode & 0o777 == 0o600
    text = key.read_text()
    error = run("keygen", key, status=13)["error"]
    assert (error["reason"], key.read_text()) == ("exists", text)
    error = run("keygen", tmp_path / "none" / "key", status=14)["error"]
    assert error["message"] == f"nothing is at {tmp_path}/none"
    assert key_id not in told("keygen", tmp_path / "other")[0]
    run("push", scene.a, "codex", CODEX_ID, "--key-file", key)
    stored = b"".join(path.read_bytes() for path in scene.store_path.rglob("*") if path.is_file())
    assert b"lemon" not in stored
    assert run("log", "codex", CODEX_ID, status=12)["error"]["reason"] == "wrong_key"
    wrong = run("log", "codex", CODEX_ID, "--key-file", tmp_path / "other", status=12)["error"]
    assert wrong["reason"] == "wrong_key"
    monkeypatch.setenv("OUTPOST_ARCHIVE_KEY", text)
    assert len(run("log", "codex", CODEX_ID)["snapshots"]) == 1
    assert run("verify")["whole"]
    key.chmod(0o644)
    assert run("log", "codex", CODEX_ID, "--key-file", key, status=14)["error"]["reason"] == "access"
    monkeypatch.setenv("OUTPOST_ARCHIVE_KEY", "no key")
    error = run("list", status=12)["error"]
    assert error["reason"] == "invalid_argument"
    assert "no key" not in json.dumps(error)


def test_a_store_must_be_named_and_be_there(
    scene: Scene, run: Run, told: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with a store is told with what to do."""
    missing = f"file://{scene.store_path}/none"
    for url, reason in (("ftp://x", "invalid_store"), ("memory://x", "invalid_store"), (missing, "no_such_store")):
        error = run("list", "--store", url, status=12)["error"]
        assert error["reason"] == reason
        assert error["hint"]
        assert "hint: " in told("list", "--store", url, status=12)[1]
    assert run("log", "codex", CODEX_ID, status=10)["error"]["reason"] == "not_found"
    monkeypatch.delenv("OUTPOST_STORE")
    assert "--store" in told("list", status=2)[1]


def test_secrets_are_replaced_before_they_are_archived(scene: Scene, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A push takes the redactions that a capture takes."""
    monkeypatch.setenv("THE_SECRET", "lemon")
    pushed = run("push", scene.a, "codex", CODEX_ID, "--redact-env", "THE_SECRET")
    assert pushed["redactions"]["THE_SECRET"] > 0
    assert "lemon" not in json.dumps(run("show", "codex", CODEX_ID))


def test_people_are_told_what_was_done(scene: Scene, told: Callable[..., tuple[str, str]]) -> None:
    """How much, which snapshot, where, and how to resume."""
    out, _ = told("push", scene.a, "codex", CODEX_ID)
    assert out.startswith("archived 2 files, ")
    assert f"store    file://{scene.store_path}, namespace team\n" in out
    out, _ = told("pull", scene.b, "codex", CODEX_ID)
    assert out.startswith("restored 2 files, ")
    assert f"codex exec resume {CODEX_ID}" in out
    assert told("pull", scene.b, "codex", CODEX_ID)[0].startswith("already there, nothing changed\n")
