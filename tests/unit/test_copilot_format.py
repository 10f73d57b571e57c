"""The Copilot format: which bytes move, which stay, and what is refused, over sessions that 1.0.102 recorded."""

import hashlib
import json
import posixpath
from pathlib import PurePosixPath

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from host_client.agents import copilot
from support.hook import Context, Files, from_source
from support.recorded import Recording, recording, recordings

relocate, validate = from_source(copilot.relocate), from_source(copilot.validate)

NEW = "/srv/a much: longer/demo-app"
ALL = recordings("copilot")
INDEX = "rewind-file-snapshots/index.json"
BACK = "/home/dev/.copilot/session-state/"


def move(files: dict[str, bytes], id: str, cwd: str, home: str) -> dict[str, bytes]:  # noqa: A002
    """Apply the hooks as a restore does."""
    context = Context(id=id, cwd=cwd, target=f"{home}/.copilot/session-state/{id}", files=Files(files))
    paths = [path for path in copilot.PROFILE.relocated if path in files]
    return files | {path: relocate(path, files[path].decode(), context).encode() for path in paths}


def selected(session: Recording) -> dict[str, bytes]:
    """Choose what a capture takes."""
    exclude = copilot.PROFILE.exclude
    assert exclude is not None
    return {path: content for path, content in session.files.items() if not exclude.search(path)}


def moved_text(path: str, text: str, cwd: str = "/new", **others: str) -> str:
    """Relocate one file; `others` holds the session's workspace.yaml when it matters."""
    held = {"workspace.yaml": others.get("workspace", "").encode()}
    result: str = relocate(path, text, Context(id="s1", cwd=cwd, target="/h/session-state/s1", files=Files(held)))
    return result


@pytest.mark.parametrize("name", ALL)
def test_every_recording_is_accepted(name: str) -> None:
    """No session that the CLI itself left is refused, one copied while a tool ran included."""
    session = recording("copilot", name)
    assert validate(Files(selected(session)), session.id) is None


@pytest.mark.parametrize("name", ALL)
def test_there_and_back_is_the_identity(name: str) -> None:
    """Moved to another home and workspace and back, every byte is what the CLI wrote."""
    session = recording("copilot", name)
    files = selected(session)
    away = move(files, session.id, NEW, "/home/other")
    assert away != files
    assert validate(Files(away), session.id) is None
    assert move(away, session.id, session.workspace, "/home/dev") == files


@pytest.mark.parametrize("name", ALL)
def test_only_the_values_that_name_the_place_change(name: str) -> None:
    """Each file is what a careful hand would have written, and files of other kinds are untouched."""
    session = recording("copilot", name)
    files = selected(session)
    away = move(files, session.id, NEW, "/home/other")
    for path, content in files.items():
        old = content.decode("utf-8", "surrogateescape").split("\n")
        new = away[path].decode("utf-8", "surrogateescape").split("\n")
        assert len(old) == len(new)
        changed = [(before, after) for before, after in zip(old, new, strict=True) if before != after]
        if path == "workspace.yaml":
            quoted = [(f"{key}: {session.workspace}", f"{key}: '{NEW}'") for key in ("cwd", "git_root")]
            assert changed == quoted
        elif path == "events.jsonl":
            kinds = {json.loads(before)["type"] for before, _ in changed}
            assert kinds <= {"session.start", "session.resume"}
            assert "session.start" in kinds
            assert all(before.replace(f'"{session.workspace}"', f'"{NEW}"') == after for before, after in changed)
        elif path != INDEX:
            assert not changed


def test_the_rewind_index_is_the_one_that_copilot_would_have_written() -> None:
    """Paths, resolved paths, hex forms and keys name the new place, in the workspace and in the session directory."""
    session = recording("copilot", "1.0.102/tool")
    away = move(selected(session), session.id, NEW, "/home/other")
    before, after = json.loads(session.files[INDEX]), json.loads(away[INDEX])
    seen = []
    for old, new in zip(before["snapshots"], after["snapshots"], strict=True):
        assert {**old, "files": 0} == {**new, "files": 0}
        for was, (key, file) in zip(old["files"].values(), new["files"].items(), strict=True):
            seen.append(file["path"])
            assert key == hashlib.sha256(file["path"].encode()).hexdigest()[:32]
            assert file["preimage"].get("contentHash") == was["preimage"].get("contentHash")
            for side in ("preimage", "postimage"):
                if "resolvedPath" in was[side]:
                    assert file[side]["resolvedPath"] == file["path"]
                    assert bytes.fromhex(file[side]["encodedPath"]["data"]).decode() == file["path"]
    own = f"/home/other/.copilot/session-state/{session.id}"
    assert seen == [f"{NEW}/note.txt", f"{NEW}/notes.txt", f"{NEW}/notes.txt", f"{own}/plan.md", f"{own}/files/a.txt"]
    assert session.files[INDEX].count(b"\n") == away[INDEX].count(b"\n")


def rewind_entry(path: str, key: str | None = None) -> str:
    """Make a rewind index with one file."""
    key = hashlib.sha256(path.encode()).hexdigest()[:32] if key is None else key
    side = {"resolvedPath": path, "encodedPath": {"encoding": "unix-bytes", "data": path.encode().hex()}}
    return json.dumps({"snapshots": [{"files": {key: {"path": path, "preimage": {}, "postimage": side}}}]})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/w/repo/api/a.txt", "/new/api/a.txt"),
        ("/w/repo/other.txt", "/new/other.txt"),
        ("/w/repo-other/a.txt", "/w/repo-other/a.txt"),
        ("/etc/hosts", "/etc/hosts"),
        ("/old/.copilot/session-state/s1/plan.md", "/h/session-state/s1/plan.md"),
        ("/old/.copilot/session-state/s12/plan.md", "/old/.copilot/session-state/s12/plan.md"),
    ],
)
def test_files_outside_the_old_place_stay_in_the_rewind_index(old: str, new: str) -> None:
    """Only what lay below the workspace, its repository or the session moves; prefixes are compared by component."""
    workspace = "id: s1\ncwd: /w/repo/api\ngit_root: /w/repo\n"
    assert moved_text(INDEX, rewind_entry(old), "/new/api", workspace=workspace) == rewind_entry(new)


def test_a_rewind_index_of_another_shape_is_left_alone() -> None:
    """A key that is no hash of the path, hex that is none, and text that is no JSON are not guessed at."""
    workspace = "id: s1\ncwd: /ws\n"
    moved = json.loads(moved_text(INDEX, rewind_entry("/ws/a", "key"), workspace=workspace))
    assert list(moved["snapshots"][0]["files"]) == ["key"]
    odd = [
        "",
        "{",
        "[]",
        '{"snapshots": 5}',
        '{"snapshots": [{"files": []}, 5, {"files": {"k": 1, "l": {"path": 5}}}]}',
        '{"snapshots": [{"files": {"k": {"path": "/etc", "postimage": {"encodedPath": {"data": "2f7"}}}}}]}',
    ]
    for text in odd:
        assert moved_text(INDEX, text, workspace=workspace) == text
    assert moved_text(INDEX, rewind_entry("/ws/a"), workspace="id: s1\n") == rewind_entry("/ws/a")


@pytest.mark.parametrize(
    ("root", "new", "new_root"),
    [
        ("/w/repo/api", "/n/x", "/n/x"),
        ("/w/repo/api/lib", "/n/x", "/n/x/lib"),
        ("/w/repo", "/n/x", "/n/x"),
        ("/w/repo", "/n/other/api", "/n/other"),
        ("/w", "/n/repo/api", "/n"),
        ("/w", "/repo/api", "/"),
        ("/", "/n/w/repo/api", "/n"),
        ("/w/repo-x", "/n/x", "/w/repo-x"),
        ("/w/rep", "/n/x", "/w/rep"),
    ],
)
def test_the_git_root_keeps_its_place_above_the_workspace(root: str, new: str, new_root: str) -> None:
    """Above, it stays above when the new workspace ends alike, else it is the workspace; a foreign one is kept."""
    yaml = f"id: s1\ncwd: /w/repo/api\ngit_root: {root}\n"
    assert moved_text("workspace.yaml", yaml, new) == f"id: s1\ncwd: {new}\ngit_root: {new_root}\n"
    event = '{{"type":"session.start","data":{{"context":{{"cwd":"{0}","gitRoot":"{1}"}}}}}}'
    assert moved_text("events.jsonl", event.format("/w/repo/api", root), new) == event.format(new, new_root)


@pytest.mark.parametrize(
    ("path", "scalar"),  # as written by 1.0.102 for such a directory
    [
        ("/ws/w 2: x", "'/ws/w 2: x'"),
        ("/ws/w #3", "'/ws/w #3'"),
        ("/ws/it's", "/ws/it's"),
        ('/ws/qu"ote', '/ws/qu"ote'),
        ("/ws/uni-é中😀", "/ws/uni-é中😀"),
        ("/ws/- dash", "/ws/- dash"),
        ("/ws/trail ", "'/ws/trail '"),
        ('/ws/a: b\'s "q" \\ x', "'/ws/a: b''s \"q\" \\ x'"),
        ("/ws/tab\tx", '"/ws/tab\\tx"'),
        ("/ws/true", "/ws/true"),
        ("/ws/end:", "'/ws/end:'"),
    ],
)
def test_a_workspace_is_written_and_read_as_copilot_writes_it(path: str, scalar: str) -> None:
    """Plain where YAML allows it, else in single quotes, else escaped; and each form is read back."""
    yaml = "id: s1\ncwd: {}\ngit_root: {}\nname: 'a: b'\n"
    written = moved_text("workspace.yaml", yaml.format("/old", "/old/sub"), path)
    assert written.split("\n")[1] == f"cwd: {scalar}"
    assert moved_text("workspace.yaml", written, "/old") == yaml.format("/old", "/old/sub")
    assert validate(Files({"workspace.yaml": written.encode(), "events.jsonl": START}), "s1") is None


@given(path=st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1).map("/{}".format))
def test_any_directory_is_read_back_as_it_was_written(path: str) -> None:
    """Whatever the name of a workspace holds, line ends and quotes included, the next move finds it again."""
    assume(path == posixpath.normpath(path))
    yaml = "id: s1\ncwd: /old\ngit_root: /old/sub\nname: x\n"
    written = moved_text("workspace.yaml", yaml, path)
    assert len(written.split("\n")) == 5
    assert moved_text("workspace.yaml", written, "/old") == yaml


START = b'{"type":"session.start","data":{"sessionId":"s1"}}\n'


@pytest.mark.parametrize(
    "form",
    [
        "cwd:   {}   # why\n",
        "cwd: '{}' # x\n",
        '"cwd" : "{}"  \n',
        "cwd:\n  {}\n",
        "cwd: {}\r\n",
        "---\n# first\ncwd: {}\n...\n",
    ],
)
def test_every_way_to_write_a_value_is_read(form: str) -> None:
    """Spacing, comments, line ends and everything around the value stay; needless quotes go with the value."""
    yaml = "id: s1\n" + form + "git_root: {}\nname: |-\n  cwd: /ws\n  more\n"
    expected = yaml.format("/new", "/new/r").replace("'/new'", "/new").replace('"/new"', "/new")
    assert moved_text("workspace.yaml", yaml.format("/ws", "/ws/r")) == expected
    assert (
        validate(Files({"workspace.yaml": yaml.format("/ws", "/ws/r").encode(), "events.jsonl": START}), "s1") is None
    )


@pytest.mark.parametrize(
    "form", ["cwd: |-\n  /ws/new\n  line\n", "cwd: >-\n  /ws/new\n  line\n\n", 'cwd: "/ws/\\x41\\u00e9\\e"\n']
)
def test_forms_that_only_an_odd_directory_has_are_replaced_whole(form: str) -> None:
    """A block or an escaped text gives way to a plain one; what follows is not swallowed."""
    moved = moved_text("workspace.yaml", "id: s1\n" + form + "branch: main\n")
    assert moved.replace("\n\n", "\n") == "id: s1\ncwd: /new\nbranch: main\n"


def test_a_workspace_without_a_directory_stays_so() -> None:
    """Copilot tolerates that; nothing is invented."""
    assert moved_text("workspace.yaml", "id: s1\ngit_root: /ws\n") == "id: s1\ngit_root: /ws\n"


def test_escapes_spacing_and_key_order_around_a_value_stay() -> None:
    r"""Only the value's bytes change: `1e2`, `\u00e9`, blanks, doubled keys and trailing blanks are kept."""
    line = (
        ' {"x" : 1e2, "data": {"context" :{"gitRoot":"\\/ws", "cwd" :  "\\u002fws","cwd":"/ws"} ,"y":"caf\\u00e9 /ws"},'
        '"type": "session.resume"}\t\r'
    )
    assert moved_text("events.jsonl", line) == line.replace('"\\/ws"', '"/new"').replace(
        '"\\u002fws"', '"/new"'
    ).replace('"cwd":"/ws"', '"cwd":"/new"')


def test_contexts_of_another_directory_stay_history() -> None:
    """The directory the conversation last ran in moves; where it had been before, by the user's own doing, does not."""
    event = '{{"type":"session.{}","data":{{"context":{{"cwd":"{}"}}}}}}\n'
    before = [("start", "/first"), ("resume", "/ws-other"), ("resume", "/ws/sub"), ("resume", "/ws")]
    after = [("start", "/first"), ("resume", "/ws-other"), ("resume", "/new/sub"), ("resume", "/new")]
    texts = ["".join(event.format(*entry) for entry in entries) for entries in (before, after)]
    assert moved_text("events.jsonl", texts[0]) == texts[1]


def test_lines_that_are_no_events_stay_bit_for_bit() -> None:
    """Blank, torn, invalid, foreign and deeply nested lines, line ends, a mark at the start and raw U+2028 are kept."""
    start = '{"type":"session.start","data":{"context":{"cwd":"/ws"}}}'
    deep = '{"type":"session.start","x":' + "[" * 100_000 + "]" * 100_000 + "}"
    rest = '\r\n\n  \r\n[1]\n5\nnull\n{"type":"session.start"}\n{"type":"session.start","data":5}\n' + deep
    rest += '\n{"type":"note","data":{"context":{"cwd":"/ws"}},"v":"a\u2028b\u0085c \udcff"}\n{"type":"session.st'
    assert moved_text("events.jsonl", "\ufeff" + start + rest) == "\ufeff" + start.replace("/ws", "/new") + rest


def changed(path: str, content: bytes) -> str | None:
    """Validate a recorded session with one file replaced."""
    session = recording("copilot", "1.0.102/simple")
    problem: str | None = validate(Files(session.files | {path: content}), session.id)
    return problem


def replaced(path: str, old: bytes, new: bytes) -> str | None:
    """Validate a recorded session with a part of one file replaced."""
    content = recording("copilot", "1.0.102/simple").files[path]
    assert old in content
    return changed(path, content.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"id: aaaa", b"\xef\xbb\xbfid: aaaa", "line 1"),
        (b"id: aaaa", b"ident: aaaa", "session (none)"),
        (b"id: aaaa", b"id: bbbb", "session bbbb"),
        (b"name: hello alpha", b"name: hello: alpha", "needs quotes"),
        (b"name: hello alpha", b"name: 'hello alpha", "quote"),
        (b"name: hello alpha", b"name: 5", "name is no text"),
        (b"name: hello alpha", b"name: true", "name is no text"),
        (b"cwd: /home/dev/demo-app", b"cwd: ~", "cwd is no text"),
        (b"cwd: /home/dev/demo-app", b"cwd:", "cwd is no text"),
        (b"branch: main", b"cwd: /x", "repeats cwd"),
        (b"branch: main", b"bran", "line 4"),
        (b"branch: main", b"- main", None),
        (b"branch: main", b"\xff", "not UTF-8"),
    ],
)
def test_a_workspace_that_ends_copilot_without_a_word_is_refused(old: bytes, new: bytes, words: str | None) -> None:
    """Each was tried on 1.0.102: status 1, nothing printed."""
    problem = replaced("workspace.yaml", old, new)
    assert (problem is None) if words is None else (problem is not None and words in problem)


def test_a_workspace_cut_short_is_refused() -> None:
    """Half-written files of every length are named, but for those cut at the end of a line, which can be whole."""
    session = recording("copilot", "1.0.102/simple")
    content = session.files["workspace.yaml"]
    assert changed("workspace.yaml", b"") is not None
    whole = content.index(b"updated_at")
    for end in range(1, len(content) - 6):
        if content[:end].endswith(b"\n") or end < whole:
            continue
        assert changed("workspace.yaml", content[:end]) is not None, content[:end]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (b"", "no session.start"),
        (b"\n\n", "no session.start"),
        (b"garbage\n", "no session.start"),
        (b'{"type":"user.message","data":{}}\n', "no session.start"),
        (b'{"type":"session.start","data":{"sessionId":"other"}}\n', "of session other"),
    ],
)
def test_events_that_copilot_cannot_load_are_refused(events: bytes, words: str) -> None:
    """No conversation, or another one's: Copilot finds nothing, or reports the wrong id."""
    problem = changed("events.jsonl", events)
    assert problem is not None
    assert words in problem


def test_what_copilot_tolerates_is_accepted() -> None:
    """Bad lines anywhere, a torn tail, a mark at the start, NUL bytes and a start that is not first all resumed."""
    events = recording("copilot", "1.0.102/simple").files["events.jsonl"]
    lines = events.split(b"\n")
    assert changed("events.jsonl", events[:-40]) is None
    assert changed("events.jsonl", b"\xef\xbb\xbf" + events) is None
    assert (
        changed("events.jsonl", b"\n".join([lines[1], b"garbage", lines[0], b"\0" * 99, b"\xff", *lines[2:]])) is None
    )
    assert changed("events.jsonl", lines[0] + b"\n" + events) is None
    for key in (b"name", b"user_named", b"created_at", b"updated_at", b"branch", b"cwd"):
        yaml = recording("copilot", "1.0.102/simple").files["workspace.yaml"].split(b"\n")
        assert changed("workspace.yaml", b"\n".join(line for line in yaml if not line.startswith(key))) is None
    assert replaced("workspace.yaml", b"branch: main", b"zzz:\n  a: b\n  c:\n  - 1\nyyy:\n- a\n# note") is None
    assert replaced("workspace.yaml", b"name: hello alpha", b"name: |-\n  first: line\n\n     'third #") is None


def test_locks_and_database_companions_are_left_out() -> None:
    """What a running process holds stays; what the user or the model made goes, whatever its name."""
    exclude, lock = copilot.PROFILE.exclude, copilot.PROFILE.lock
    assert exclude is not None
    assert lock is not None
    out = ["inuse.24501.lock", "inuse.24501.hold", ".workspace-fork.lock", "session.db-wal", "session.db-shm"]
    assert all(exclude.search(path) for path in out)
    kept = [
        "events.jsonl",
        "session.db",
        "files/yarn.lock",
        "files/inuse.txt",
        "files/great-wal",
        "research",
        "plan.md",
    ]
    assert not any(exclude.search(path) for path in kept)
    held = lock.search("inuse.24501.lock")
    assert held is not None
    assert held["pid"] == "24501"
    assert not lock.search("inuse.24501.hold")


def test_a_bundle_with_the_two_required_files_moves() -> None:
    """What the first Outpost saved may hold less; it is valid and moves all the same."""
    session = recording("copilot", "1.0.102/tool")
    files = {path: session.files[path] for path in copilot.PROFILE.required}
    assert validate(Files(files), session.id) is None
    assert f"cwd: '{NEW}'".encode() in move(files, session.id, NEW, "/home/other")["workspace.yaml"]


def test_the_command_that_resumes() -> None:
    """The workspace is named, since Copilot would go to the recorded one; an unknown id must be an error."""
    command = copilot.resume_command("s1", PurePosixPath("/w x"))
    assert command == ["copilot", "-C", "/w x", "--resume", "s1"]
