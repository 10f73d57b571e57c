"""The redaction options of `outpost capture` and `outpost relay`, for the built-in formats."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from host_client.cli.__main__ import main
from support.recorded import DATA, recording

if TYPE_CHECKING:
    from pathlib import Path

KIMI = recording("kimi", "2.1.0/simple")
COPILOT = recording("copilot", "1.0.102/simple")
WORD = "hush-4711"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a recorded session of both CLIs, a secret in one file of each, beside an empty one, `b`."""
    for recorded in ("kimi/2.1.0/simple", "copilot/1.0.102/simple"):
        shutil.copytree(DATA / recorded / "home", tmp_path / "a", dirs_exist_ok=True)
    (tmp_path / "b").mkdir()
    for place, name in ((KIMI, "agents/main/wire.jsonl"), (COPILOT, "events.jsonl")):
        (path,) = (tmp_path / "a").glob(f"**/{place.id}/{name}")
        with path.open("a") as file:
            file.write(json.dumps({"type": "note", "text": f"{WORD} and mail@example.test"}) + "\n")
    return tmp_path / "a"


def saved(document: dict[str, Any]) -> bytes:
    """Return all contents of the bundle that a capture kept."""
    with open(document["path"], "rb") as file:  # noqa: PTH123 - as the document says it
        return b"".join(b64decode(entry["data"]) for entry in json.load(file)["files"])


def words(home: Path, command: str, cli: str) -> list[str]:
    """Return the command line of a capture or relay of the session."""
    conversation_id = (KIMI if cli == "kimi" else COPILOT).id
    where = [f"local:{home.parent / 'b'}"] if command == "relay" else ["--home", str(home.parent)]
    return [command, f"local:{home}", cli, conversation_id, *where, "--durability", "none"]


@pytest.mark.parametrize("cli", ["kimi", "copilot"])
@pytest.mark.parametrize("how", ["env", "file", "pattern"])
def test_a_capture_hides_what_the_options_say(
    home: Path, cli: str, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the environment, a file or a pattern; hits are in text and document, the secret is nowhere."""
    monkeypatch.setenv("WORD", f"{WORD}\n")
    listed = home.parent / "secrets.txt"
    listed.write_bytes(f"\ufeffunused-1\r\n\n{WORD}\r\n".encode())
    options, hits = {
        "env": (["--redact-env", "WORD"], {"WORD": 1}),
        "file": (["--redact-file", str(listed)], {"file:1": 0, "file:3": 1}),
        "pattern": (["--redact-pattern", r"note=hush-\d+", "--redact-pattern", "mail=mail@"], {"note": 1, "mail": 1}),
    }[how]
    command = [*words(home, "capture", cli), *options, "--redact-binary", "pass"]
    assert main([*command, "--json"]) == 0
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert document["redactions"] == hits
    assert WORD.encode() not in saved(document)
    assert main(command) == 0
    shown = capsys.readouterr()
    assert all(f"redacted {name}: {count}\n" in shown.out for name, count in hits.items())
    assert "(unchanged)" in shown.out
    assert WORD not in told.out + told.err + shown.out + shown.err


def test_a_relay_hides_what_the_options_say(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target gets the redacted session; hits are in the document."""
    monkeypatch.setenv("WORD", WORD)
    assert main([*words(home, "relay", "kimi"), "--redact-env", "WORD", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["redactions"] == {"WORD": 1}
    (placed,) = (home.parent / "b").glob("**/wire.jsonl")
    assert b"[redacted:WORD] and mail" in placed.read_bytes()
    assert WORD.encode() not in placed.read_bytes()


def test_binary_files_are_refused_by_default(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a rule a file that is not text fails the capture, status 10; without any it does not matter."""
    monkeypatch.setenv("WORD", WORD)
    (events,) = home.glob(f"**/{COPILOT.id}/events.jsonl")
    (events.parent / "files").mkdir(exist_ok=True)
    (events.parent / "files/a.bin").write_bytes(b"\xff\0")
    command = words(home, "capture", "copilot")
    assert main([*command, "--redact-env", "WORD", "--json"]) == 10
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["reason"] == "redaction_unsupported"
    assert [offender["path"] for offender in error["offenders"]] == ["files/a.bin"]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["redactions"] == {}


@pytest.fixture
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set one variable to a secret and one to nothing."""
    monkeypatch.setenv("WORD", WORD)
    monkeypatch.setenv("EMPTY", "\n")


@pytest.mark.usefixtures("_variables")
@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--redact-env", "NO_SUCH_VARIABLE"], 2, "'NO_SUCH_VARIABLE' is not set, or empty"),
        (["--redact-env", "EMPTY"], 2, "'EMPTY' is not set, or empty"),
        (["--redact-file", "no-such-file"], 2, "does not exist"),
        (["--redact-file", "BINARY"], 2, "cannot be read as UTF-8 text"),
        (["--redact-pattern", "x"], 2, "is not NAME=REGEX"),
        (["--redact-pattern", "=x"], 2, "is not NAME=REGEX"),
        (["--redact-pattern", "x=("], 2, "is no regular expression"),
        (["--redact-pattern", "x=y*"], 12, "matches the empty text"),
        (["--redact-env", "WORD", "--redact-env", "WORD"], 12, "several redaction rules have the name 'WORD'"),
        (["--redact-binary", "x"], 2, "is not one of"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    home: Path, options: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is captured, and without the secret in the message."""
    (home.parent / "binary").write_bytes(WORD.encode() + b"\xff")
    given = [str(home.parent / "binary") if word == "BINARY" else word for word in options]
    assert main([*words(home, "capture", "kimi"), *given]) == status
    shown = capsys.readouterr()
    assert message in " ".join((shown.out + shown.err).split())
    assert WORD not in shown.out + shown.err
    assert not (home.parent / ".outpost").exists()
