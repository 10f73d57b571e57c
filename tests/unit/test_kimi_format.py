"""The Kimi Code format: which bytes move, which stay, and what is refused, over sessions that 2.1.0 recorded."""

import difflib
import hashlib
import json
import re
from pathlib import PurePosixPath

import pytest

from host_client.agents import kimi
from sandbox_agent.core.hook_child import Helpers
from support.hook import Context, Files, from_source
from support.recorded import Recording, recording, recordings

bucket, relocate, validate = (from_source(hook) for hook in (kimi.bucket, kimi.relocate, kimi.validate))

NEW = "/srv/a much longer place/demo-app"
ALL = recordings("kimi")
WIRE = "agents/main/wire.jsonl"


def relocated_paths(files: dict[str, bytes]) -> list[str]:
    """Choose the files that the profile says are rewritten."""
    return [path for path in files if path == "state.json" or re.fullmatch(r"agents/[^/]+/wire\.jsonl", path)]


def move(files: dict[str, bytes], id: str, cwd: str, home: str) -> tuple[dict[str, bytes], str]:  # noqa: A002
    """Apply the hooks as a restore does; return the new files and the new session directory."""
    target = f"{home}/.kimi-code/sessions/{bucket(cwd, Helpers())}/{id}"
    context = Context(id=id, cwd=cwd, target=target, files=Files(files))
    moved = {path: relocate(path, files[path].decode(), context).encode() for path in relocated_paths(files)}
    return files | moved, target


def moved_line(line: str, cwd: str = "/new", state: str = "") -> str:
    """Relocate one wire of one line, of a session whose state is given when it matters."""
    files = Files({"state.json": state.encode()})
    context = Context(id="s1", cwd=cwd, target="/h/.kimi-code/sessions/wd_new_1/s1", files=files)
    result: str = relocate(WIRE, line, context)
    return result


def bind(prompt: str, cwd: str = "/ws") -> str:
    """Make a `profile.bind` record as 2.1.0 writes it."""
    record = {
        "type": "profile.bind",
        "systemPrompt": prompt,
        "environmentDisclosure": {"cwd": cwd},
        "agentsMdPaths": [],
    }
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def prompt_of(line: str) -> str:
    """Read the prompt back."""
    prompt: str = json.loads(line)["systemPrompt"]
    return prompt


@pytest.mark.parametrize("name", ALL)
def test_every_recording_is_accepted(name: str) -> None:
    """No session that the CLI itself left is refused, one copied while a tool ran included."""
    session = recording("kimi", name)
    assert validate(Files(session.files), session.id) is None


@pytest.mark.parametrize("name", ALL)
def test_there_and_back_is_the_identity(name: str) -> None:
    """Moved to another home and workspace and back, every byte is what the CLI wrote."""
    session = recording("kimi", name)
    away, target = move(session.files, session.id, NEW, "/home/other")
    assert away != session.files
    assert target.endswith(f"/wd_demo-app_{hashlib.sha256(NEW.encode()).hexdigest()[:12]}/{session.id}")
    back, place = move(away, session.id, session.workspace, "/home/dev")
    assert back == session.files
    assert place == session.place


@pytest.mark.parametrize("name", ALL)
def test_only_the_values_that_name_the_place_change(name: str) -> None:
    """The changed spans of each file are the workspace, the bucket and the agents' homes, nothing else."""
    session = recording("kimi", name)
    away, target = move(session.files, session.id, NEW, "/home/other")
    old_bucket, new_bucket = session.place.split("/")[-2], target.split("/")[-2]
    for path in relocated_paths(session.files):
        before, after = session.files[path].decode().split("\n"), away[path].decode().split("\n")
        assert len(before) == len(after)
        for old, new in zip(before, after, strict=True):
            if old == new:
                continue
            expected = old
            if path == "state.json":
                expected = expected.replace(session.place, target)
            assert json.loads(old).get("type") in (None, "runtime.set_binding", "profile.bind", "config.update")
            expected = expected.replace(session.workspace, NEW).replace(f'"{old_bucket}"', f'"{new_bucket}"')
            assert new == expected
    unmoved = set(session.files) - set(relocated_paths(session.files))
    assert all(away[path] == session.files[path] for path in unmoved)


@pytest.mark.parametrize("name", ALL)
def test_history_keeps_what_was_said_in_the_old_workspace(name: str) -> None:
    """Records of what tools did and printed are not touched: only three kinds of record differ."""
    session = recording("kimi", name)
    away, _ = move(session.files, session.id, NEW, "/home/other")
    for path in relocated_paths(session.files):
        if path == "state.json":
            continue
        lines = difflib.ndiff(session.files[path].decode().split("\n"), away[path].decode().split("\n"))
        kinds = {json.loads(line[2:])["type"] for line in lines if line.startswith("- ")}
        assert kinds == {"runtime.set_binding", "profile.bind"}


def test_the_model_is_told_the_new_workspace() -> None:
    """The prompt that Kimi Code replays names the new directory and no longer the old one."""
    session = recording("kimi", "2.1.0/subagent")
    away, _ = move(session.files, session.id, NEW, "/home/other")
    for path in ("agents/main/wire.jsonl", "agents/agent-0/wire.jsonl"):
        records = [json.loads(line) for line in away[path].decode().split("\n") if line]
        (bound,) = [record for record in records if record["type"] == "profile.bind"]
        assert f"working directory is `{NEW}`" in bound["systemPrompt"]
        assert session.workspace not in bound["systemPrompt"].replace(NEW, "")
        assert bound["environmentDisclosure"] == {"cwd": NEW}


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/dev/demo-app", "wd_demo-app_4f15e4aa9286"),  # recorded by 2.1.0
        ("/tmp/cx/w1", "wd_w1_7dee3747b0c8"),  # recorded by 2.1.0
        ("/tmp/cx/repo/sub", "wd_sub_74693c1dbffa"),  # recorded by 2.1.0
        ("/", "wd_workspace_e3b0c44298fc"),
        ("/w/My Proj_1.2 (x)", "wd_my-proj_1.2-x_" + hashlib.sha256(b"/w/My Proj_1.2 (x)").hexdigest()[:12]),
        ("/w/---", "wd_workspace_" + hashlib.sha256(b"/w/---").hexdigest()[:12]),
        ("/w/a\\b", "wd_b_" + hashlib.sha256(b"/w/a/b").hexdigest()[:12]),
        ("/w/" + "x" * 39 + "-y", "wd_" + "x" * 39 + "_" + hashlib.sha256(b"/w/" + b"x" * 39 + b"-y").hexdigest()[:12]),
        ("/w/Проект", "wd_workspace_" + hashlib.sha256("/w/Проект".encode()).hexdigest()[:12]),
    ],
)
def test_the_bucket_is_the_one_that_kimi_computes(cwd: str, name: str) -> None:
    """Slug and hash follow `encodeWorkDirKey` of 2.1.0."""
    assert bucket(cwd, Helpers()) == name


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("dir `/ws`.", "dir `/new`."),
        ('in /ws/a, /ws: (/ws) "/ws" /ws', 'in /new/a, /new: (/new) "/new" /new'),
        ("end of /ws. Next", "end of /new. Next"),
        ("see file:///ws/x", "see file:///new/x"),
        ("/ws-other /ws_2 /ws.bak /wsé /ws2", None),
        ("/home/ws a/ws ./ws ../ws ~/ws /ws/../x//ws", "/home/ws a/ws ./ws ../ws ~/ws /new/../x//ws"),
        ("regex . is no dot: /wXs", None),
    ],
)
def test_mentions_in_the_prompt_end_where_a_path_ends(prompt: str, expected: str | None) -> None:
    """A directory whose name merely begins or ends like the workspace is another one."""
    assert prompt_of(moved_line(bind(prompt))) == (expected or prompt)


def test_a_workspace_with_odd_letters_moves() -> None:
    """Letters that mean something to JSON or to a pattern are neither misread nor miswritten."""
    old, new = '/w/a+b (c) "d" \\ é😀', '/n/$1 \\1 "q"\t😀\u2028'
    line = moved_line(bind(f"in `{old}` and `{old}x`", old), new)
    assert prompt_of(line) == f"in `{new}` and `{old}x`"
    assert json.loads(line)["environmentDisclosure"]["cwd"] == new


def test_escapes_spacing_and_key_order_around_a_value_stay() -> None:
    r"""Of a prompt only the path changes: `\u00e9`, `\/`, pairs of surrogates, blanks and doubled keys are kept."""
    line = (
        ' {"x" : 1e2, "systemPrompt" :"caf\\u00e9 \\ud83d\\ude00 \\u2028 `\\/ws\\/a` /ws \\u002fws \\n", '
        '"type": "profile.bind","environmentDisclosure":{ "y":[ ] ,"cwd":  "\\/ws" } , "agentsMdPaths":'
        '["/ws/AGENTS.md","/AGENTS.md", "/ws-other/AGENTS.md"]}\t\r'
    )
    assert moved_line(line) == (
        ' {"x" : 1e2, "systemPrompt" :"caf\\u00e9 \\ud83d\\ude00 \\u2028 `/new\\/a` /new /new \\n", '
        '"type": "profile.bind","environmentDisclosure":{ "y":[ ] ,"cwd":  "/new" } , "agentsMdPaths":'
        '["/new/AGENTS.md","/AGENTS.md", "/ws-other/AGENTS.md"]}\t\r'
    )


def test_a_rendered_again_prompt_moves_too() -> None:
    """`config.update` carries a prompt as well, and may leave out the directory that was disclosed before."""
    update = '{"type":"config.update","systemPrompt":"now `/ws`","agentsMdPaths":["/ws/AGENTS.md"]}'
    lines = moved_line(bind("x") + "\n" + update).split("\n")
    assert lines[1] == update.replace("/ws", "/new")
    assert moved_line(update) == update


def test_an_agent_of_a_folder_goes_to_the_same_folder() -> None:
    """What an agent was told lies below the session's directory stays below it; a foreign prompt takes the new one."""
    state = '{"cwd":"/ws"}'
    assert moved_line(bind("in `/ws/sub` of `/ws`", "/ws/sub"), "/new", state) == bind(
        "in `/new/sub` of `/new`", "/new/sub"
    )
    assert moved_line(bind("in `/ws2/sub`", "/ws2/sub"), "/new", state) == bind("in `/new`", "/new")
    assert moved_line(bind("in `/new/sub`", "/new/sub"), "/new", '{"cwd":"/new"}') == bind("in `/new/sub`", "/new/sub")


def test_a_session_at_the_root_moves() -> None:
    """The root directory is replaced where the prompt quotes it, and not in every path."""
    assert prompt_of(moved_line(bind("in `/`, see /etc and a / b", "/"))) == "in `/new`, see /etc and a / b"
    assert prompt_of(moved_line(bind("in `/ws`/"), "/")) == "in `/`/"


def test_lines_that_are_no_records_stay_bit_for_bit() -> None:
    """Blank, torn, invalid, foreign and deeply nested lines, line ends, a mark at the start and raw U+2028 are kept."""
    deep = '{"type":"profile.bind","x":' + "[" * 100_000 + "]" * 100_000 + "}"
    foreign = '{"type":"note","workspaceId":"wd_old","cwd":"/ws","v":"a\u2028b\u0085c"}'
    wire = "\ufeff" + bind("/ws") + "\r\n\n  \r\n[1]\n5\nnull\n" + deep + "\n" + foreign + '\n{"type":"profile.bi'
    assert moved_line(wire) == "\ufeff" + bind("/new", "/new") + wire[1 + len(bind("/ws")) :]


def test_bytes_that_are_no_text_pass_through() -> None:
    """The daemon hands such bytes over as lone surrogates; a record that holds them moves like any other."""
    assert moved_line(bind("caf\udcff /ws")) == bind("caf\udcff /new", "/new")


def test_a_session_that_is_there_already_does_not_change() -> None:
    """Relocation to the place that is recorded gives the same bytes, odd escapes included."""
    line = (
        bind("in `/new`", "/new").replace("/", "\\/")
        + '\n{"type":"runtime.set_binding","workspaceId":"wd\\u005fnew_1"}'
    )
    assert moved_line(line) == line
    context = Context(id="s1", cwd="/new", target="/h/.kimi-code/sessions/wd_new_1/s1", files=Files({}))
    state = '{"cwd":"\\/new","agents":{"main":{"homedir":"\\/h/.kimi-code/sessions/wd_new_1/s1/agents/main"}}}\n'
    assert relocate("state.json", state, context) == state


def test_a_state_without_the_usual_fields_is_left_alone() -> None:
    """What Kimi Code heals itself is neither refused nor invented."""
    context = Context(id="s1", cwd="/new", target="/h/s/wd_new_1/s1", files=Files({}))
    for state in ("[]", "{}", '{"cwd":5,"agents":[]}', '{"agents":{"main":{"homedir":"/elsewhere"}}}'):
        assert relocate("state.json", state, context) == state


def changed(session: Recording, path: str, content: bytes) -> str | None:
    """Validate a session with one file replaced."""
    problem: str | None = validate(Files(session.files | {path: content}), session.id)
    return problem


@pytest.mark.parametrize(
    "line", [b"{torn", b"   ", b"\0" * 50, b'{"v":NaN}', b'{"v":"a\tb"}', b"{}{}", b"\xef\xbb\xbf{}"], ids=repr
)
def test_a_bad_line_in_the_middle_is_refused(line: bytes) -> None:
    """Kimi Code forgets all that follows such a line, with status 0: each was tried on 2.1.0."""
    session = recording("kimi", "2.1.0/multiturn")
    lines = session.files[WIRE].split(b"\n")
    lines.insert(8, line)
    problem = changed(session, WIRE, b"\n".join(lines))
    assert problem is not None
    assert "line 9" in problem
    assert WIRE in problem


def test_a_bad_line_in_a_sub_agent_is_refused() -> None:
    """Every wire is looked at, not only the main one."""
    session = recording("kimi", "2.1.0/subagent")
    path = "agents/agent-0/wire.jsonl"
    problem = changed(session, path, b"{bad\n" + session.files[path])
    assert problem is not None
    assert path in problem


@pytest.mark.parametrize(
    "tail",
    [
        b"{torn",
        b"{torn\n",
        b'\n\n{"a":\n\n',
        b"\0" * 1728,
        b'{"ok":1}',
        b"[]\n5\n{}\n",
        b'{"n":' + b"9" * 5000 + b"}\n",
    ],
)
def test_what_kimi_tolerates_at_the_end_is_accepted(tail: bytes) -> None:
    """A torn last line, blank lines, foreign values and a huge number cost 2.1.0 nothing."""
    session = recording("kimi", "2.1.0/multiturn")
    assert changed(session, WIRE, session.files[WIRE] + tail) is None


def test_what_kimi_tolerates_elsewhere_is_accepted() -> None:
    """A byte order mark, CRLF, blank lines, bytes that are no UTF-8, another id or shape of state: all resumed."""
    session = recording("kimi", "2.1.0/multiturn")
    wire, state = session.files[WIRE], session.files["state.json"]
    assert changed(session, WIRE, b"\xef\xbb\xbf" + wire) is None
    assert changed(session, WIRE, b"\n" + wire.replace(b"\n", b"\r\n").replace(b"\r\n", b"\r\n\r\n", 3)) is None
    assert changed(session, WIRE, wire.replace(b"first one", b"first \xff\xfe one")) is None
    assert changed(session, "state.json", b"\xef\xbb\xbf" + state) is None
    assert changed(session, "state.json", state.replace(session.id.encode(), b"session_x")) is None
    assert changed(session, "state.json", b"[]") is None


@pytest.mark.parametrize("state", [b"", b"{garbage", b'{"cwd":'])
def test_an_unreadable_state_is_refused(state: bytes) -> None:
    """Kimi Code does not find such a session."""
    problem = changed(recording("kimi", "2.1.0/simple"), "state.json", state)
    assert problem is not None
    assert "state.json" in problem


@pytest.mark.parametrize("wire", [b"", b"\n\n", b"{torn"])
def test_a_session_without_a_record_is_refused(wire: bytes) -> None:
    """An empty conversation is no success: Kimi Code says "Model not set"."""
    problem = changed(recording("kimi", "2.1.0/simple"), WIRE, wire)
    assert problem is not None
    assert "no record" in problem


def test_logs_tasks_cron_notes_and_locks_are_left_out() -> None:
    """The profile selects the conversation and what belongs to it, agents' own task output included."""
    exclude = kimi.PROFILE.exclude
    assert exclude is not None
    out = ["logs", "tasks", "cron", "notify", "x.lock", "agents/main/wire.jsonl.lock", "notify/state.json"]
    assert all(exclude.search(path) for path in out)
    kept = ["state.json", "agents/main/tasks", "agents/main/tasks/a/output.log", "agents/main/plans/p.md", "logs2"]
    kept += ["agents/main/wire.jsonl.bak", "agents/logs", "agents/main/file-history/0a@v2", "notify.json"]
    assert not any(exclude.search(path) for path in kept)


def test_a_bundle_with_the_two_required_files_moves() -> None:
    """What the first Outpost saved may hold less; it is valid and moves all the same."""
    session = recording("kimi", "2.1.0/tool")
    files = {path: session.files[path] for path in kimi.PROFILE.required}
    assert validate(Files(files), session.id) is None
    away, _ = move(files, session.id, NEW, "/home/other")
    assert json.loads(away["state.json"])["cwd"] == NEW


def test_the_command_that_resumes() -> None:
    """A restore can tell the user what to run in the workspace."""
    assert kimi.resume_command("session_1", PurePosixPath("/w")) == ["kimi", "-S", "session_1"]
