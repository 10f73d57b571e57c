"""The options of `outpost`: each does what its help says, for the built-in formats."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from host_client.cli.__main__ import main
from host_client.stores.bundle import SessionBundleConversations
from sandbox_api.errors import SessionError
from sandbox_api.limits import Limits
from support.recorded import DATA, recording

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from host_client.stores.context import ConversationContext

    Run = Callable[..., dict[str, Any]]

RECORDINGS = {"copilot": "1.0.102/simple", "kimi": "2.1.0/simple"}
ID = recording("copilot", RECORDINGS["copilot"]).id


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command with `--json`; check its exit status and return its document."""

    def run(*words: object, status: int = 0) -> dict[str, Any]:
        assert main([*map(str, words), "--json"]) == status, capsys.readouterr()
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a recorded Copilot session, beside an empty one, `b`, which is also where copies are kept."""
    shutil.copytree(DATA / "copilot" / RECORDINGS["copilot"] / "home", tmp_path / "a")
    (tmp_path / "b").mkdir()
    return tmp_path / "a"


def session_of(home: Path) -> Path:
    """Return where a home has the session."""
    return home / ".copilot/session-state" / ID


def reason(document: dict[str, Any]) -> str:
    """Return the reason of a failure."""
    return str(document["error"]["reason"])


@pytest.mark.parametrize(
    ("name", "variable", "directory"),
    [("copilot", "COPILOT_HOME", ".copilot"), ("kimi", "KIMI_CODE_HOME", ".kimi-code")],
)
def test_the_variable_of_the_cli_wins_over_its_home(
    tmp_path: Path, run: Run, name: str, variable: str, directory: str
) -> None:
    """The session is read from and written to where the CLI keeps it; a decoy in the home is not touched."""
    session_id = recording(name, RECORDINGS[name]).id
    for place in ("a", "b"):
        (tmp_path / place / "work").mkdir(parents=True)
        shutil.copytree(DATA / name / RECORDINGS[name] / "home" / directory, tmp_path / place / directory)
        for decoy in (tmp_path / place).rglob("*.jsonl"):
            decoy.write_text("decoy")
    shutil.copytree(DATA / name / RECORDINGS[name] / "home" / directory, tmp_path / "a/work/state")
    decoys = {path: path.stat() for path in (tmp_path / "b" / directory).rglob("*")}
    words = (name, session_id, "--home", tmp_path, "--variable")
    a, b = (f"local:{tmp_path / place},{tmp_path / place / 'work'}" for place in ("a", "b"))
    captured = run("capture", a, *words, f"{variable}={tmp_path}/a/work/state")
    assert captured["source"].startswith(f"{tmp_path}/a/work/state/")
    restored = run("restore", b, *words, f"{variable}={tmp_path}/b/work/state")
    assert restored["target"].startswith(f"{tmp_path}/b/work/state/")
    assert {path: path.stat() for path in (tmp_path / "b" / directory).rglob("*")} == decoys
    assert run("sessions", b, name, "--variable", f"{variable}={tmp_path}/b/work/state")["sessions"][0]["complete"]


def test_the_variable_of_a_sandbox_is_not_that_of_the_user(
    home: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore of the user's own session finds it where the user's CLI keeps it, wherever the sandbox's does."""
    monkeypatch.setenv("HOME", str(home))
    words = (f"local:{tmp_path / 'b'}", "copilot", ID, "--repository", tmp_path)
    restored = run("restore", *words, "--variable", f"COPILOT_HOME={tmp_path}/b/state")
    assert restored["target"] == f"{tmp_path}/b/state/session-state/{ID}"


def test_a_linked_cli_home_is_accepted_by_choice(home: Path, tmp_path: Path, run: Run) -> None:
    """Without the option it is `root_symlink`; with it the resolved path is reported."""
    (home / ".copilot").rename(home / "real")
    (home / ".copilot").symlink_to("real")
    words = (f"local:{home}", "copilot", ID, "--home", tmp_path)
    assert reason(run("capture", *words, status=10)) == "root_symlink"
    assert run("capture", *words, "--follow-root-link")["source"] == str(home / "real/session-state" / ID)


def test_links_are_left_out_by_choice(home: Path, tmp_path: Path, run: Run) -> None:
    """Without the option all are named in the refusal; with it they are named in the document."""
    (session_of(home) / "files").mkdir(exist_ok=True)
    for name in ("one", "two"):
        (session_of(home) / "files" / name).symlink_to("/etc/passwd")
    words = ("capture", f"local:{home}", "copilot", ID, "--home", tmp_path)
    refused = run(*words, status=10)["error"]
    assert refused["reason"] == "symlink"
    assert [row["path"] for row in refused["offenders"]] == ["files/one", "files/two"]
    left_out = [row["path"] for row in run(*words, "--skip-links")["left_out"] if row["why"] == "symlink"]
    assert left_out == ["files/one", "files/two"]


def test_a_session_in_use_is_told_and_replaced_by_choice(
    home: Path, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """A capture warns; a restore and an undo refuse with `in_use` unless they are forced."""
    keep = ("copilot", ID, "--home", tmp_path)
    target = f"local:{tmp_path / 'b'}"
    run("capture", f"local:{home}", *keep)
    run("restore", target, *keep)
    (session_of(tmp_path / "b") / "plan.md").write_text("mine")
    lock = f"inuse.{os.getpid()}.lock"
    for place in (home, tmp_path / "b"):
        (session_of(place) / lock).touch()
    assert run("capture", f"local:{home}", *keep)["in_use_pid"] == os.getpid()
    assert main(["capture", f"local:{home}", *map(str, keep)]) == 0
    assert f"note: in_use: process {os.getpid()} has the session open" in capsys.readouterr().err
    assert reason(run("restore", target, *keep, status=13)) == "in_use"
    assert reason(run("relay", f"local:{home}", "copilot", ID, target, status=13)["targets"][0]) == "in_use"
    assert run("restore", target, *keep, "--force")["recovery"]
    (session_of(tmp_path / "b") / lock).touch()
    assert reason(run("recovery", "undo", target, "copilot", ID, status=13)) == "in_use"
    run("recovery", "undo", target, "copilot", ID, "--force")
    assert (session_of(tmp_path / "b") / "plan.md").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_what_is_restored_belongs_to_the_owner(home: Path, tmp_path: Path, run: Run) -> None:
    """All that is made in the home belongs to the user and group that were named."""
    keep = ("copilot", ID, "--home", tmp_path)
    run("capture", f"local:{home}", *keep)
    run("restore", f"local:{tmp_path / 'b'}", *keep, "--owner", "1001:1002")
    made = list((tmp_path / "b/.copilot").rglob("*"))
    assert made
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(1001, 1002)}


def test_recovery_goes_by_name_and_age(home: Path, tmp_path: Path, run: Run) -> None:
    """An undo takes the entry that was named; a prune by age leaves what is young."""
    keep = ("copilot", ID, "--home", tmp_path)
    place = (f"local:{tmp_path / 'b'}", "copilot")
    run("capture", f"local:{home}", *keep)
    run("restore", place[0], *keep)
    names = []
    for text in ("first", "second"):
        (session_of(tmp_path / "b") / "plan.md").write_text(text)
        names.append(run("restore", place[0], *keep)["recovery"])
    assert [row["name"] for row in run("recovery", "list", *place, ID)["entries"]] == names[::-1]
    assert run("recovery", "list", *place, "another")["entries"] == []
    run("recovery", "undo", *place, ID, "--entry", names[0])
    assert (session_of(tmp_path / "b") / "plan.md").read_text() == "first"
    assert run("recovery", "prune", *place, "--older-than-days", "1")["removed"] == []
    assert sorted(run("recovery", "prune", *place, "--older-than-days", "0")["removed"]) == sorted(names)


@pytest.mark.parametrize("command", ["capture", "restore"])
def test_the_rest_reaches_the_store(
    home: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Limits, durability, retries and places arrive as the options say."""
    seen: list[ConversationContext] = []

    async def note(_self: object, _id: str, context: ConversationContext) -> None:
        seen.append(context)
        raise SessionError("changed", "noted")

    monkeypatch.setattr(SessionBundleConversations, "capture" if command == "capture" else "locate", note)
    words = [command, f"local:{home}", "copilot", ID, "--repository", str(tmp_path), "--durability", "none"]
    words += ["--max-bytes", "5", "--max-files", "7", *(["--retries", "3"] if command == "capture" else [])]
    run(*words, status=10)
    (context,) = seen
    assert (context.limits, context.durability, context.base) == (Limits(5, 7), "none", tmp_path)
    assert context.retries == (3 if command == "capture" else 0)
