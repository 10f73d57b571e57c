"""The `outpost` command against private daemons: documents, texts, exit statuses, no traceback."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MANUAL = (Path(__file__).parents[2] / "docs/outpost.md").read_text()
DATA = Path(__file__).parents[1] / "data"
COPILOT = "copilot/1.0.102/tool"
KIMI = "kimi/2.1.0/multiturn"


def outpost(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command with an environment of its own and check its exit status."""
    ended = subprocess.run(
        [sys.executable, "-m", "host_client.cli", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == status, f"{arguments}: {ended.stdout}{ended.stderr}"
    assert "Traceback" not in ended.stderr
    return ended


def document(*arguments: str, status: int = 0) -> dict[str, object]:
    """Run the command with `--json` and return its one document."""
    got = json.loads(outpost(*arguments, "--json", status=status).stdout)
    assert isinstance(got, dict)
    return got


class Hosts:
    """Two homes with workspaces, a repository, and the session recorded in one of them."""

    def __init__(self, folder: Path, recorded: str) -> None:
        self.a, self.b = folder / "a", folder / "b"
        self.work_a, self.work_b = folder / "work a", folder / "work b longer"
        self.repository = folder / "repository"
        shutil.copytree(DATA / recorded / "home", self.a)
        for made in (self.b, self.work_a, self.work_b, self.repository):
            made.mkdir()
        self.id = json.loads((DATA / recorded / "expected.json").read_text())["session_id"]
        self.source = f"local:{self.a},{self.work_a}"
        self.target = f"local:{self.b},{self.work_b}"
        self.keep = ("--repository", str(self.repository))


@pytest.fixture
def copilot(tmp_path: Path) -> Hosts:
    """A recorded Copilot session."""
    return Hosts(tmp_path, COPILOT)


@pytest.fixture
def kimi(tmp_path: Path) -> Hosts:
    """A recorded Kimi session."""
    return Hosts(tmp_path, KIMI)


def test_a_copilot_session_moves_by_command(copilot: Hosts) -> None:
    """Capture, restore: the document names files, digests and how to resume; the cwd is the new workspace's."""
    captured = document("capture", copilot.source, "copilot", copilot.id, *copilot.keep)
    assert captured["id"] == copilot.id
    kept = Path(str(captured["path"]))
    assert kept == copilot.repository / f".outpost/conversations/copilot/{copilot.id}.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(kept.read_text())["digest"] == captured["digest"]
    restored = document("restore", copilot.target, "copilot", copilot.id, *copilot.keep)
    session = copilot.b / ".copilot/session-state" / copilot.id
    assert restored["target"] == str(session)
    assert restored["resume"] == ["copilot", "-C", str(copilot.work_b), "--resume", copilot.id]
    assert f"cwd: {copilot.work_b}" in (session / "workspace.yaml").read_text()
    again = document("restore", copilot.target, "copilot", copilot.id, *copilot.keep)
    assert again["unchanged"] is True
    assert again["recovery"] is None


def test_a_kimi_session_moves_to_the_bucket_of_its_workspace(kimi: Hosts) -> None:
    """The bucket is computed for the new workspace: slug and twelve digits of its SHA-256."""
    document("capture", kimi.source, "kimi", kimi.id, *kimi.keep)
    restored = document("restore", kimi.target, "kimi", kimi.id, *kimi.keep)
    session = Path(str(restored["target"]))
    expected = "wd_work-b-longer_" + hashlib.sha256(str(kimi.work_b).encode()).hexdigest()[:12]
    assert session.parent.name == expected
    assert json.loads((session / "state.json").read_text())["cwd"] == str(kimi.work_b)


def test_a_second_capture_moves_next_to_nothing(copilot: Hosts) -> None:
    """What the host holds is not sent again."""
    first = document("capture", copilot.source, "copilot", copilot.id, *copilot.keep)
    second = document("capture", copilot.source, "copilot", copilot.id, *copilot.keep)
    assert second["unchanged"] is True
    assert int(str(second["received_bytes"])) < int(str(first["received_bytes"])) / 10


def test_sessions_info_and_doctor_speak_to_people_and_scripts(copilot: Hosts) -> None:
    """Each has a text and a document; the session that is there is listed as complete."""
    listed = document("sessions", copilot.source, "copilot")
    assert [(row["id"], row["complete"]) for row in listed["sessions"]] == [(copilot.id, True)]  # type: ignore[index, attr-defined]
    assert copilot.id in outpost("sessions", copilot.source, "copilot").stdout
    assert "no sessions" in outpost("sessions", copilot.target, "copilot").stdout
    assert document("info", copilot.source)["home"] == str(copilot.a)
    assert str(copilot.work_a) in outpost("info", copilot.source).stdout
    findings = document("doctor", copilot.source, "copilot")["findings"]
    assert findings
    assert all(row["level"] == "ok" for row in findings), findings  # type: ignore[attr-defined]
    assert "ok" in outpost("doctor", copilot.source).stdout


def test_the_manual_names_every_key_of_every_document(copilot: Hosts) -> None:
    """docs/outpost.md: what a script can find in the documents stands there, in the section of the command."""
    kept = str(copilot.repository / f".outpost/conversations/copilot/{copilot.id}.json")
    place = (copilot.target, "copilot")
    documents = {
        "info": document("info", copilot.source),
        "sessions": document("sessions", copilot.source, "copilot"),
        "capture": document("capture", copilot.source, "copilot", copilot.id, *copilot.keep),
        "validate": document("validate", kept),
        "restore": document("restore", *place, copilot.id, *copilot.keep),
        "doctor": document("doctor", copilot.target),
        "relay": document("relay", copilot.source, "copilot", copilot.id, copilot.target, "local:/none", status=12),
        "Failures": document("info", "local:/none", status=12),
    }
    (copilot.b / ".copilot/session-state" / copilot.id / "plan.md").write_text("mine")
    document("restore", *place, copilot.id, *copilot.keep)
    documents["recovery list"] = document("recovery", "list", *place)
    documents["recovery undo"] = document("recovery", "undo", *place, copilot.id)
    documents["recovery prune"] = document("recovery", "prune", *place, "--keep", "0")
    sections = dict(re.findall(r"^#+ ([a-zF ]+?)(?: [A-Z[][^\n]*)?\n(.*?)(?=^##|\Z)", MANUAL, re.MULTILINE | re.DOTALL))
    for name, found in documents.items():
        told = set(re.findall(r"`([a-z_]+)`", sections[name] + (sections["Failures"] if name == "relay" else "")))
        assert _keys(found) <= told | {"errno", "path"}, name


def _keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()


def test_recovery_is_listed_undone_and_pruned(copilot: Hosts) -> None:
    """A replaced session is set aside; undo swaps; prune removes."""
    document("capture", copilot.source, "copilot", copilot.id, *copilot.keep)
    document("restore", copilot.target, "copilot", copilot.id, *copilot.keep)
    session = copilot.b / ".copilot/session-state" / copilot.id
    (session / "plan.md").write_text("mine")
    replaced = document("restore", copilot.target, "copilot", copilot.id, *copilot.keep)["recovery"]
    listed = document("recovery", "list", copilot.target, "copilot")
    assert [row["name"] for row in listed["entries"]] == [replaced]  # type: ignore[index, attr-defined]
    document("recovery", "undo", copilot.target, "copilot", copilot.id)
    assert (session / "plan.md").read_text() == "mine"
    document("recovery", "undo", copilot.target, "copilot", copilot.id)
    assert (session / "plan.md").read_text() != "mine"
    outpost("recovery", "prune", copilot.target, "copilot", status=2)
    assert document("recovery", "prune", copilot.target, "copilot", "--keep", "0")["removed"] == [replaced]
    assert "nothing was set aside" in outpost("recovery", "list", copilot.target, "copilot").stdout


def test_relay_tries_every_target(copilot: Hosts, tmp_path: Path) -> None:
    """A dead target is reported with its error and does not stop the others; the exit status is its family's."""
    dead = f"unix:{tmp_path}/no.sock"
    other = tmp_path / "c"
    other.mkdir()
    result = document("relay", copilot.source, "copilot", copilot.id, dead, copilot.target, f"local:{other}", status=17)
    rows: list[dict[str, object]] = result["targets"]  # type: ignore[assignment]
    assert [row["target"] for row in rows] == [dead, copilot.target, f"local:{other}"]
    assert rows[0]["error"]["reason"] == "unreachable"  # type: ignore[index]
    assert [row.get("state") for row in rows[1:]] == ["restored", "restored"]
    assert (other / ".copilot/session-state" / copilot.id / "events.jsonl").exists()
    assert list(copilot.repository.iterdir()) == []


def test_relay_refuses_a_target_that_is_given_twice(copilot: Hosts) -> None:
    """A target that is given twice, in whatever spelling, is refused before anything is begun."""
    done = outpost("relay", copilot.source, "copilot", copilot.id, copilot.target, f"{copilot.target}/", status=12)
    assert "listed more than once" in done.stderr
    assert document("sessions", copilot.target, "copilot")["sessions"] == []


def test_validate_tells_a_whole_file_from_a_broken_one(copilot: Hosts) -> None:
    """A kept file is valid; with one byte changed it is refused with what and where."""
    kept = Path(str(document("capture", copilot.source, "copilot", copilot.id, *copilot.keep)["path"]))
    assert document("validate", str(kept))["id"] == copilot.id
    assert outpost("validate", str(kept)).stdout.startswith("valid: copilot")
    data = kept.read_bytes()
    at = data.index(b'"data":"') + 20
    kept.write_bytes(data[:at] + (b"A" if data[at : at + 1] != b"A" else b"B") + data[at + 1 :])
    assert document("validate", str(kept), status=10)["error"]["reason"] in {"digest_mismatch", "corrupt"}  # type: ignore[index]


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (("capture", "{source}", "copilot", "no-such-id"), 10, "session/not_found"),
        (("capture", "{source}", "copilot", "session 1/../x"), 12, "configuration/invalid_id"),
        (("capture", "{source}", "fortran", "x"), 12, "configuration/unknown_format"),
        (("restore", "{target}", "copilot", "never-seen"), 10, "session/not_found"),
        (("info", "unix:/nonexistent/agent.sock"), 17, "unavailable/unreachable"),
        (("info", "carrier-pigeon"), 12, "configuration/invalid_target"),
        (("sessions", "local:/nonexistent", "copilot"), 12, "configuration/invalid_target"),
        (("capture", "{source}", "copilot", "{id}", "--max-files", "1"), 15, "limit/max_files"),
    ],
)
def test_failures_are_one_line_with_code_reason_and_status(
    copilot: Hosts, arguments: tuple[str, ...], status: int, reason: str
) -> None:
    """Code, reason and exit status in text and in the document; no traceback."""
    words = [word.format(source=copilot.source, target=copilot.target, id=copilot.id) for word in arguments]
    if words[0] in {"capture", "restore"}:
        words += copilot.keep
    ended = outpost(*words, status=status)
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"outpost: {reason}: ")
    error = document(*words, status=status)["error"]
    assert f"{error['code']}/{error['reason']}" == reason  # type: ignore[index]


def test_a_wrong_command_line_exits_with_2() -> None:
    """Usage errors are click's: status 2, usage on standard error."""
    assert "Usage" in outpost("capture", status=2).stderr
    assert "relay" in outpost("--help").stdout


def test_progress_is_json_lines_for_scripts(copilot: Hosts) -> None:
    """With --json, standard error holds records of bytes and files; the last one is complete."""
    ended = outpost("capture", copilot.source, "copilot", copilot.id, *copilot.keep, "--json")
    records = [json.loads(line) for line in ended.stderr.splitlines()]
    assert records
    assert records[-1]["files"] == records[-1]["files_total"] > 0
    assert records[-1]["bytes"] == records[-1]["bytes_total"] > 0
