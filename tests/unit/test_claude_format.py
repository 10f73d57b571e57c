"""The layout of Claude Code: its keys, and what belongs to a conversation."""

import json
from pathlib import Path, PurePosixPath

import pytest

from host_client.agents.claude import LAYOUT, conversation_id, project_key, resume_command
from host_client.stores.layout import Conversation, Related, SandboxPlace, Skipped
from support.host_files import HostTree
from support.recorded import DATA

ID = "f1000000-0000-4000-8000-000000000001"

KEYS = [
    ("/home/dev/demo-app", "-home-dev-demo-app"),
    ("/home/u/my.app_v2/.wt", "-home-u-my-app-v2--wt"),
    ("/a/b-c", "-a-b-c"),
    ("/a/b/c", "-a-b-c"),
    ("/a/b_c", "-a-b-c"),
    ("/w/Проект", "-w-------"),
    ("/w/Привет", "-w-------"),
    ("/Case/Kept", "-Case-Kept"),
    ("/with (two) spaces ", "-with--two--spaces-"),
    ("/emoji/😀", "-emoji---"),
    ("/漢字", "---"),
    ("/caf\u00e9", "-caf-"),
    ("/cafe\u0301", "-cafe-"),
]


@pytest.mark.parametrize(("directory", "key"), KEYS)
def test_the_key_of_a_directory(directory: str, key: str) -> None:
    """Every UTF-16 unit but ASCII letters and digits is a dash; nothing is normalized, and keys collide."""
    assert project_key(directory) == key


def test_the_key_of_a_long_directory_ends_in_a_hash() -> None:
    """200 units stay as they are; from 201 on the rest becomes a hash of the whole path, in base 36."""
    assert project_key("/" + "a" * 199) == "-" + "a" * 199
    longer, other = project_key("/" + "a" * 200), project_key("/" + "a" * 199 + "b")
    assert longer.startswith("-" + "a" * 199 + "-")
    assert longer != other
    assert project_key("/" + "x" * 300) == "-" + "x" * 199 + "-" + _hash("/" + "x" * 300)
    assert project_key("/😀" + "x" * 300) == "---" + "x" * 197 + "-" + _hash("/😀" + "x" * 300)


def _hash(text: str) -> str:
    """Compute the hash in another way: Java's `String.hashCode`, its absolute value in base 36."""
    units = text.encode("utf-16-be")
    pairs = [units[at] << 8 | units[at + 1] for at in range(0, len(units), 2)]
    number = sum(unit * pow(31, len(pairs) - 1 - at) for at, unit in enumerate(pairs)) % (1 << 32)
    number = abs(number - (1 << 32) if number >= 1 << 31 else number)
    digits = []
    while number:
        digits.append("0123456789abcdefghijklmnopqrstuvwxyz"[number % 36])
        number //= 36
    return "".join(reversed(digits))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"projects/-w/{ID}.jsonl", ID),
        (f"projects/-w/{ID.upper()}.jsonl", ID.upper()),
        ("projects/-w/notes.jsonl", None),
        (f"projects/-w/{ID}/subagents/agent-a.jsonl", None),
        (f"projects/{ID}.jsonl", None),
        (f"elsewhere/-w/{ID}.jsonl", None),
        (f"projects/-w/{ID}.json", None),
    ],
)
def test_the_id_of_a_transcript(path: str, expected: str | None) -> None:
    """A main transcript lies directly in a project's folder and is named by a UUID, as the CLI demands."""
    assert conversation_id(PurePosixPath(path)) == expected
    assert LAYOUT.matches(Path("/home/.claude") / path, ID) is (expected == ID)


def test_places_follow_the_workspace() -> None:
    """On both sides the folder is that of the new working directory, whatever the old one was."""
    home, repository = Path("/u/.claude"), Path("/src/my.repo")
    original = PurePosixPath(f"/h/.claude/projects/-old/{ID}.jsonl")
    kept = home / "projects/-src-my-repo" / f"{ID}.jsonl"
    assert LAYOUT.capture_path(ID, repository, home, original) == kept
    assert LAYOUT.preferred_path(ID, repository, home) == kept
    assert LAYOUT.directory(repository, home) == kept.parent
    place = SandboxPlace(PurePosixPath("/h/.claude"), PurePosixPath("/w_s"))
    assert LAYOUT.remote_path(ID, place, kept) == PurePosixPath(f"/h/.claude/projects/-w-s/{ID}.jsonl")


async def _related(home: Path, wanted_id: str, slugs: frozenset[str] = frozenset()) -> dict[str, Related | Skipped]:
    (transcript,) = (home / "projects").glob(f"*/{wanted_id}.jsonl")
    told = Conversation(
        wanted_id, PurePosixPath(transcript.relative_to(home)), HostTree(home), {"slug": slugs} if slugs else {}
    )
    return {str(item.path): item for item in await LAYOUT.related(told)}


@pytest.mark.anyio
async def test_what_belongs_to_a_rich_session() -> None:
    """2.1.197: results, file history and tasks belong; the lock of the tasks is named and left."""
    recorded = DATA / "claude/2.1.197/rich"
    wanted_id = json.loads((recorded / "expected.json").read_text())["session_id"]
    related = await _related(recorded / "home/.claude", wanted_id)
    assert related == {
        path: Related(PurePosixPath(path), beside=path.startswith("projects/"))
        for path in (
            f"projects/-home-dev-demo-app/{wanted_id}/tool-results/brbz7qqrj.txt",
            f"file-history/{wanted_id}/e54918dcee62b47a@v2",
            f"tasks/{wanted_id}/1.json",
        )
    } | {f"tasks/{wanted_id}/.lock": Skipped(PurePosixPath(f"tasks/{wanted_id}/.lock"), "lock of the CLI")}


@pytest.mark.anyio
async def test_sub_agents_are_transcripts() -> None:
    """Their lines have a cwd of their own; the description beside them is carried as it is."""
    recorded = DATA / "claude/2.1.332/subagent"
    wanted_id = json.loads((recorded / "expected.json").read_text())["session_id"]
    related = await _related(recorded / "home/.claude", wanted_id)
    assert {PurePosixPath(path).suffix: item.kind for path, item in related.items() if isinstance(item, Related)} == {
        ".jsonl": "transcript",
        ".json": "plain",
    }
    assert all(isinstance(item, Related) and item.beside for item in related.values())


@pytest.mark.anyio
async def test_plans_come_by_their_name_alone(tmp_path: Path) -> None:
    """A plan belongs when the transcript names it; a name that is a path, or a plan of others, does not."""
    home = tmp_path / ".claude"
    for path in (f"projects/-w/{ID}.jsonl", "plans/mine.md", "plans/other.md", "plans/deep/mine.md", "secret.md"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text("{}\n")
    related = await _related(home, ID, frozenset({"mine", "../secret", "gone", "*"}))
    assert list(related) == ["plans/mine.md"]


@pytest.mark.anyio
async def test_what_is_secret_or_running_is_left(tmp_path: Path) -> None:
    """Credentials and the registry of running processes are named and left, also those of another conversation not."""
    home = tmp_path / ".claude"
    for path, content in {
        f"projects/-w/{ID}.jsonl": "{}\n",
        ".credentials.json": "secret",
        "sessions/12.json": json.dumps({"pid": 12, "sessionId": ID}),
        "sessions/13.json": json.dumps({"pid": 13, "sessionId": "another"}),
        "sessions/12.abc.key": "secret",
    }.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(content)
    related = await _related(home, ID)
    assert list(related.values()) == [
        Skipped(PurePosixPath("sessions/12.json"), "registry of a running process"),
        Skipped(PurePosixPath(".credentials.json"), "credentials"),
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"type":"user","uuid":"u"}', True),
        (b'{"type":"assistant"}', True),
        (b'{"type":"summary","summary":"s","leafUuid":"l"}', False),
        (b'{"type":"mode"}', False),
        (b'{"type":"user","text":"\xff\xed\xa0\x80"}', True),
        (b'\xef\xbb\xbf{"type":"user"}', True),
        (b'{"type":"mode"}{"type":"assistant"}', True),
        (b'{"type":"mode","payload":{"type":"user"}}', False),
        (b"[]", False),
        (b"", False),
        (b"{", False),
        (b"[" * 100_000, False),
    ],
)
def test_what_was_said(line: bytes, expected: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A transcript of nothing but titles and modes holds nothing that could be resumed."""
    assert LAYOUT.is_record(line) is expected


def test_the_command_that_resumes() -> None:
    """By the id: what was begun with `-p` is in no list of the CLI."""
    assert resume_command(ID, PurePosixPath("/w")) == ["claude", "--resume", ID]
