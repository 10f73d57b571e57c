"""Sessions are found by the CLI's own rules, and never through a link."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.sandbox import CliHome
from sandbox_agent.core.session import (
    find_sessions,
    list_sessions,
    make_cli_home,
    only_session,
    open_cli_home,
    resolve_cli_home,
)
from sandbox_api.errors import ConfigurationError, SessionError, WorkspaceError
from support.sandbox import BUCKETED, FLAT, ID, make_session, place, sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.sandbox import Sandbox

FILES = {"state.json": b"{}"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make an empty agent home."""
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def box(home: Path) -> Iterator[Sandbox]:
    """Hold a sandbox with that home as its only root."""
    with sandbox(home) as held:
        yield held


@pytest.fixture
def cli_home(home: Path, box: Sandbox) -> Iterator[Directory]:
    """Hold the default CLI home."""
    (home / ".demo").mkdir()
    opened = open_cli_home(box, place())
    assert opened is not None
    with opened:
        yield opened


def opened_path(box: Sandbox, **changes: object) -> bytes | None:
    """Return the path of the CLI home that a place leads to."""
    opened = open_cli_home(box, place(**changes))  # type: ignore[arg-type]  # keywords of Place
    if opened is None:
        return None
    opened.close()
    return opened.path


def test_cli_home_is_in_the_agent_home(box: Sandbox, home: Path) -> None:
    """Without a variable the CLI home is the profile's directory in the agent home; absent, it is None."""
    assert opened_path(box) is None
    (home / ".demo").mkdir()
    assert opened_path(box) == os.fsencode(home / ".demo")


def test_cli_home_is_named_by_the_variable(home: Path) -> None:
    """The place's variable wins over the daemon's, which wins over the default; an empty one means the default."""
    for name in (".demo", "theirs", "ours"):
        (home / name).mkdir()
    with sandbox(home, environment={"DEMO_HOME": str(home / "ours")}) as box:
        assert opened_path(box) == os.fsencode(home / "ours")
        assert opened_path(box, variables={"DEMO_HOME": ""}) == os.fsencode(home / ".demo")
        assert opened_path(box, variables={"DEMO_HOME": f"{home}//theirs/"}) == os.fsencode(home / "theirs")
        assert opened_path(box, profile=replace(FLAT, root_variable="")) == os.fsencode(home / ".demo")


def test_a_cli_home_is_resolved_by_variable_and_directory(home: Path) -> None:
    """A variable that is set to something wins, the call's before the daemon's; a home need not exist."""
    (home / "ours").mkdir()
    with sandbox(home, environment={"X": str(home / "ours")}) as box:
        resolved = [
            resolve_cli_home(box, CliHome("X", ".x", {"X": f"{home}//theirs/"})),
            resolve_cli_home(box, CliHome("X", ".x", {"X": ""})),
            resolve_cli_home(box, CliHome("Y", ".x/y", {})),
            resolve_cli_home(box, CliHome("", "", {})),
        ]
    paths = [home / "theirs", home / ".x", home / ".x/y", home]
    assert resolved == [(os.fsencode(path), path.exists()) for path in paths]


def test_a_resolved_root_link_is_told_without_the_link(box: Sandbox, home: Path) -> None:
    """The path that is told can be opened without following anything; an unaccepted link is `root_symlink`."""
    (home / "real").mkdir()
    (home / ".demo").symlink_to("real")
    assert resolve_cli_home(box, CliHome("", ".demo", {}, follow_root_link=True)) == (os.fsencode(home / "real"), True)
    with pytest.raises(SessionError, match="root_symlink"):
        resolve_cli_home(box, CliHome("", ".demo", {}))
    with pytest.raises(SessionError, match="session/symlink"):
        resolve_cli_home(box, CliHome("", ".demo/below", {}, follow_root_link=True))


@pytest.mark.parametrize(("variable", "directory"), [("A B", ".x"), ("", "../x"), ("", "/x"), ("", "a//b")])
def test_names_of_a_cli_home_are_checked(box: Sandbox, variable: str, directory: str) -> None:
    """What cannot name a variable, or a directory below the agent home, is a mistake."""
    with pytest.raises(ConfigurationError, match="invalid_argument"):
        resolve_cli_home(box, CliHome(variable, directory, {}))


def test_a_resolved_home_is_a_directory_in_the_roots(box: Sandbox, home: Path) -> None:
    """A file in its place and a path outside are refused, not taken for a home to come."""
    (home / ".x").write_text("")
    with pytest.raises(WorkspaceError, match="not_found"):
        resolve_cli_home(box, CliHome("", ".x", {}))
    with pytest.raises(WorkspaceError, match="outside_roots"):
        resolve_cli_home(box, CliHome("X", "", {"X": "/etc"}))


@pytest.mark.parametrize(
    ("value", "reason"),
    [("/etc", "outside_roots"), ("{home}2/x", "outside_roots"), ("x", "unsafe_path"), ("{home}/../y", "unsafe_path")],
)
def test_a_variable_cannot_lead_outside(box: Sandbox, home: Path, value: str, reason: str) -> None:
    """A CLI home outside the roots, also beside one with its name as prefix, or no plain absolute path, is refused."""
    with pytest.raises(WorkspaceError) as caught:
        opened_path(box, variables={"DEMO_HOME": value.format(home=home)})
    assert caught.value.reason == reason


def test_root_link_is_refused_or_accepted_once(box: Sandbox, home: Path) -> None:
    """A CLI home that is a link is `root_symlink`; accepted, the resolved path is reported."""
    (home / "dotfiles" / "demo").mkdir(parents=True)
    (home / ".demo").symlink_to("dotfiles/demo")
    with pytest.raises(SessionError) as caught:
        opened_path(box)
    assert caught.value.reason == "root_symlink"
    assert [offender.path for offender in caught.value.offenders] == [str(home / ".demo")]
    assert opened_path(box, follow_root_link=True) == os.fsencode(home / "dotfiles" / "demo")


def test_an_accepted_root_link_stays_in_the_roots(box: Sandbox, home: Path, tmp_path: Path) -> None:
    """A root link that leads outside is `outside_roots` also when links are accepted; a dangling one is no CLI home."""
    (tmp_path / "elsewhere").mkdir()
    (home / ".demo").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceError) as caught:
        opened_path(box, follow_root_link=True)
    assert caught.value.reason == "outside_roots"
    (home / ".demo").unlink()
    (home / ".demo").symlink_to(home / "none")
    assert opened_path(box, follow_root_link=True) is None


def test_a_link_before_the_cli_home_is_refused(box: Sandbox, home: Path) -> None:
    """A link between the root and the CLI home is `symlink`, whether root links are accepted or not."""
    (home / "real" / "demo").mkdir(parents=True)
    (home / "way").symlink_to("real")
    for follow in (False, True):
        with pytest.raises(SessionError) as caught:
            opened_path(box, variables={"DEMO_HOME": str(home / "way" / "demo")}, follow_root_link=follow)
        assert caught.value.reason == "symlink"
        assert caught.value.offenders[0].path == str(home / "way")


def test_make_cli_home_creates_what_is_missing(box: Sandbox, home: Path) -> None:
    """All of the path is created, private; a second call finds it."""
    there = place(variables={"DEMO_HOME": str(home / "a" / "b")})
    for _ in range(2):
        make_cli_home(box, there, None).close()
    assert (home / "a").stat().st_mode & 0o777 == (home / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_file_in_place_of_the_cli_home_is_a_failure(box: Sandbox, home: Path) -> None:
    """No raw system error leaves the module."""
    (home / ".demo").write_bytes(b"")
    with pytest.raises(WorkspaceError):
        opened_path(box)


def test_finds_flat_sessions(cli_home: Directory, home: Path) -> None:
    """Directories with names that are ids are sessions, by path; files, staging and other names are not."""
    for name in ("b", "a", ".outpost-session-x", "not an id"):
        make_session(home, FILES, conversation_id=name)
    (home / ".demo" / "sessions" / "file").write_bytes(b"")
    (home / ".demo" / "sessions" / "link").symlink_to("a")
    assert [found.relative for found in find_sessions(cli_home, FLAT)] == [b"sessions/a", b"sessions/b"]
    assert only_session(cli_home, FLAT, "b").bucket is None


def test_finds_bucketed_sessions(cli_home: Directory, home: Path) -> None:
    """With buckets, sessions lie one level deeper; staging directories and files are no buckets."""
    make_session(home, FILES, bucket="w1")
    make_session(home, FILES, bucket="w2", conversation_id="id-2")
    make_session(home, FILES, bucket=".outpost-session-x")
    (home / ".demo" / "sessions" / "index.json").write_bytes(b"")
    assert [found.relative for found in find_sessions(cli_home, BUCKETED)] == [b"sessions/w1/id-1", b"sessions/w2/id-2"]
    found = only_session(cli_home, BUCKETED, ID)
    assert (found.bucket, found.conversation_id) == (b"w1", ID)


def test_not_found_says_where(cli_home: Directory, home: Path) -> None:
    """An id that is nowhere, with the folder of sessions or without, is `not_found` and names the folder."""
    for _ in range(2):
        with pytest.raises(SessionError) as caught:
            only_session(cli_home, FLAT, "none")
        assert caught.value.reason == "not_found"
        assert str(home / ".demo" / "sessions") in caught.value.message
        (home / ".demo" / "sessions").mkdir(exist_ok=True)


def test_the_same_id_in_two_buckets_is_ambiguous(cli_home: Directory, home: Path) -> None:
    """All candidates are named; none is guessed."""
    made = [make_session(home, FILES, bucket=bucket) for bucket in ("w1", "w2")]
    with pytest.raises(SessionError) as caught:
        only_session(cli_home, BUCKETED, ID)
    assert caught.value.reason == "ambiguous"
    assert [offender.path for offender in caught.value.offenders] == [str(path) for path in made]


@pytest.mark.parametrize("conversation_id", ["../x", "session 1/../x", "a" * 300, "a\0", "a\n"])
def test_a_bad_id_builds_no_path(cli_home: Directory, conversation_id: str) -> None:
    """An id that breaks the rule is `invalid_id` before anything is looked up; for one session, so is an empty one."""
    cli_home.close()  # a look-up would fail
    for bad in (conversation_id, ""):
        with pytest.raises(ConfigurationError) as caught:
            only_session(cli_home, FLAT, bad)
        assert caught.value.reason == "invalid_id"


@pytest.mark.parametrize("where", ["sessions", "session"])
def test_links_on_the_way_are_refused(cli_home: Directory, home: Path, tmp_path: Path, where: str) -> None:
    """A link in place of the folder of sessions, or of the session, is `symlink` and named."""
    outside = make_session(tmp_path / "other", FILES)
    link = home / ".demo" / "sessions"
    if where == "session":
        link.mkdir()
        link = link / ID
        link.symlink_to(outside)
    else:
        link.symlink_to(outside.parent)
    with pytest.raises(SessionError) as caught:
        only_session(cli_home, FLAT, ID)
    assert caught.value.reason == "symlink"
    assert [offender.path for offender in caught.value.offenders] == [str(link)]


def test_a_linked_bucket_is_refused_unless_the_session_is_elsewhere(
    cli_home: Directory, home: Path, tmp_path: Path
) -> None:
    """A session that no real bucket has may lie behind a linked one: refused. One that a real bucket has is taken."""
    outside = make_session(tmp_path / "other", FILES, bucket="w")
    make_session(home, FILES, bucket="w1", conversation_id="id-2")
    link = home / ".demo" / "sessions" / "linked"
    link.symlink_to(outside.parent)
    with pytest.raises(SessionError) as caught:
        only_session(cli_home, BUCKETED, ID)
    assert caught.value.reason == "symlink"
    assert [offender.path for offender in caught.value.offenders] == [str(link)]
    assert only_session(cli_home, BUCKETED, "id-2").bucket == b"w1"
    assert [found.conversation_id for found in find_sessions(cli_home, BUCKETED)] == ["id-2"]


def test_a_linked_session_in_one_of_two_buckets_is_refused(cli_home: Directory, home: Path) -> None:
    """A link with the session's own name is refused even when another bucket has the real directory."""
    real = make_session(home, FILES, bucket="w1")
    (home / ".demo" / "sessions" / "w2").mkdir()
    (home / ".demo" / "sessions" / "w2" / ID).symlink_to(real)
    with pytest.raises(SessionError) as caught:
        only_session(cli_home, BUCKETED, ID)
    assert caught.value.reason == "symlink"


def test_lists_what_can_be_told(box: Sandbox, home: Path) -> None:
    """A summary has path, newest time of the required files, completeness and the process that has the session open."""
    assert list(list_sessions(box, place(conversation_id=""))) == []
    made = make_session(home, {**FILES, f"inuse.{os.getpid()}.lock": b""})
    os.utime(made / "state.json", ns=(0, 12345))
    lacking = make_session(home, {}, conversation_id="id-2")
    first, second = list_sessions(box, place(conversation_id=""))
    assert (first.conversation_id, first.path, first.modified_ns) == (ID, os.fsencode(made), 12345)
    assert (first.complete, first.in_use_pid) == (True, os.getpid())
    assert (second.path, second.modified_ns, second.complete) == (os.fsencode(lacking), None, False)


def test_a_required_link_is_no_file(box: Sandbox, home: Path) -> None:
    """A required path that is a link, or lies behind one, leaves the session incomplete; nothing is followed."""
    profile = replace(FLAT, required=("state.json", "agents/wire"))
    made = make_session(home, {"real/wire": b""})
    (made / "state.json").symlink_to("real/wire")
    (made / "agents").symlink_to("real")
    (summary,) = list_sessions(box, place(profile, ""))
    assert (summary.complete, summary.modified_ns) == (False, None)
