"""A profile: each wrong one is refused when it is made, and the refusal says what to write instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from host_client.stores.profile import BundleRoot, SessionBundleProfile
from sandbox_api import wire
from sandbox_api.errors import ConfigurationError
from sandbox_api.hook import MAX_HOOK_BYTES

if TYPE_CHECKING:
    from sandbox_api.profile import Profile

_BUCKET = "lambda cwd, helpers: 'b'"
_RELOCATE = "lambda path, text, context: text"


def _profile(**changes: Any) -> SessionBundleProfile:
    fields: dict[str, Any] = {
        "format": "mycli",
        "root": BundleRoot(".mycli", "MYCLI_HOME"),
        "sessions": "sessions",
        "include": re.compile(r"^(?:session\.json|events\.jsonl|agents(?:/|$)|logs(?:/|$))"),
        "exclude": re.compile(r"^logs(?:/|$)|\.lock$"),
        "required": ("session.json",),
        "relocated": ("session.json", "agents/*/wire.jsonl"),
        "validate": "lambda files, id: None",
        "relocate": _RELOCATE,
    }
    return SessionBundleProfile(**(fields | changes))


def _compiled(**changes: Any) -> Profile:
    return _profile(**changes).compile()


def test_a_profile_becomes_plain_data_with_its_hooks_as_source() -> None:
    """What is compiled has the paths as tuples, no hook as an empty text, and survives the wire."""
    compiled = _compiled(required=["session.json"])
    assert compiled.required == ("session.json",)
    assert (compiled.root_variable, compiled.root_directory) == ("MYCLI_HOME", ".mycli")
    assert (compiled.validate, compiled.bucket) == ("lambda files, id: None", "")
    assert wire.unpack_profile(wire.pack_profile(compiled)) == compiled


def test_a_root_without_a_variable_is_accepted() -> None:
    """Not every CLI has a variable that moves its home."""
    assert _compiled(root=BundleRoot(".mycli")).root_variable == ""


REFUSALS: dict[str, tuple[dict[str, Any], str, str]] = {
    "empty format": ({"format": ""}, "format", ""),
    "format with a slash": ({"format": "a/b"}, "format", "letters"),
    "format with a leading point": ({"format": ".a"}, "format", "not starting with"),
    "format of another type": ({"format": 7}, "format", "a text"),
    "root of another type": ({"root": ".mycli"}, "root", "BundleRoot"),
    "empty variable": ({"root": BundleRoot(".mycli", "")}, "root.variable", "None"),
    "variable with a dash": ({"root": BundleRoot(".mycli", "MY-CLI")}, "root.variable", "MYCLI_HOME"),
    "variable with a digit first": ({"root": BundleRoot(".mycli", "1A")}, "root.variable", "MYCLI_HOME"),
    "variable of another type": ({"root": BundleRoot(".mycli", 5)}, "root.variable", "a text"),  # type: ignore[arg-type]
    "empty directory": ({"root": BundleRoot("")}, "root.directory", "relative path"),
    "absolute directory": ({"root": BundleRoot("/etc")}, "root.directory", "relative path"),
    "directory with a parent step": ({"root": BundleRoot("a/../..")}, "root.directory", "'..'"),
    "empty sessions": ({"sessions": ""}, "sessions", "relative path"),
    "absolute sessions": ({"sessions": "/sessions"}, "sessions", "relative path"),
    "sessions with a parent step": ({"sessions": "../sessions"}, "sessions", "'..'"),
    "sessions with a slash at the end": ({"sessions": "sessions/"}, "sessions", "relative path"),
    "buckets without a hook": ({"buckets": True}, "buckets", "a bucket hook"),
    "a hook without buckets": ({"bucket": _BUCKET}, "bucket", "buckets=True"),
    "buckets of another type": ({"buckets": "yes", "bucket": _BUCKET}, "buckets", "True or False"),
    "include as a text": ({"include": "session"}, "include", "re.compile"),
    "include missing": ({"include": None}, "include", "re.compile"),
    "include as bytes": ({"include": re.compile(b"session")}, "include", "text pattern"),
    "include for a locale": ({"include": re.compile(b"session", re.LOCALE)}, "include", "text pattern"),
    "exclude as bytes": ({"exclude": re.compile(b"x")}, "exclude", "text pattern"),
    "exclude as a text": ({"exclude": "x"}, "exclude", "re.compile"),
    "lock without its group": ({"lock": re.compile(r"^inuse\.\d+$")}, "lock", "group named pid"),
    "lock as a text": ({"lock": "inuse"}, "lock", "re.compile"),
    "logs as a text": ({"logs": "events"}, "logs", "re.compile"),
    "nothing required": ({"required": ()}, "required", "at least one path"),
    "required as one text": ({"required": "session.json"}, "required", "('session.json',)"),
    "required of another type": ({"required": (1,)}, "required", "tuple of texts"),
    "required empty": ({"required": ("",)}, "required", "session-relative path"),
    "required outside": ({"required": ("../x",)}, "required", "session-relative path"),
    "required that is not included": ({"required": ("other.json",)}, "required", "include selects"),
    "required that is excluded": ({"required": ("logs/a.jsonl",)}, "required", "exclude does not"),
    "required below a directory that is not entered": (
        {"include": re.compile(r"wire\.jsonl$"), "required": ("agents/wire.jsonl",)},
        "required",
        "include selects",
    ),
    "relocated as one text": ({"relocated": "session.json"}, "relocated", "tuple of texts"),
    "relocated absolute": ({"relocated": ("/session.json",)}, "relocated", "session-relative path"),
    "relocated that is not selected": ({"relocated": ("other.json",)}, "relocated", "include selects"),
    "relocated glob below an excluded directory": ({"relocated": ("logs/*.jsonl",)}, "relocated", "logs is not"),
    "relocated with a double star": ({"relocated": ("agents/**",)}, "relocated", "one entry for each depth"),
    "relocated without a hook": ({"relocate": None}, "relocated", "a relocate hook"),
    "a relocate hook without paths": ({"relocated": ()}, "relocate", "the paths to relocate"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_wrong_profile_is_refused_and_told_what_to_write(case: str) -> None:
    """Every rule of a profile, with the field in the facts and the way out in the hint."""
    changes, field, hint = REFUSALS[case]
    with pytest.raises(ConfigurationError) as caught:
        _profile(**changes)
    assert caught.value.reason == "invalid_profile"
    assert hint in caught.value.hint
    assert caught.value.hint
    assert field in (caught.value.facts.get("field", "format"), "format")


def test_a_pattern_that_prints_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """DEBUG would print each time the daemon compiles the pattern."""
    pattern = re.compile("session", re.DEBUG)
    capsys.readouterr()
    with pytest.raises(ConfigurationError, match="include"):
        _profile(include=pattern)


def test_a_hook_is_refused_when_the_profile_is_made() -> None:
    """A method is named before anything runs."""
    with pytest.raises(ConfigurationError) as caught:
        _profile(validate="text".startswith)
    assert caught.value.reason == "invalid_hook"


def test_the_daemon_refuses_a_hook_that_is_too_large() -> None:
    """The rule holds for profiles from the wire as well, which no host has checked."""
    message = wire.pack_profile(_compiled())
    message.validate = "lambda files, id: None  # " + "x" * MAX_HOOK_BYTES
    with pytest.raises(ConfigurationError, match="validate"):
        wire.unpack_profile(message)


@pytest.mark.parametrize("source", ["(", "(?u)a", "a{99999999999}", "(" * 5000])
def test_a_pattern_that_does_not_compile_is_refused(source: str) -> None:
    """Whatever Python's compiler raises for a pattern from the wire, the profile is what is wrong."""
    message = wire.pack_profile(_compiled())
    message.include.source, message.include.ascii = source, True
    with pytest.raises(ConfigurationError) as caught:
        wire.unpack_profile(message)
    assert caught.value.reason == "invalid_profile"


def test_a_wrong_value_is_shown_escaped_and_bounded() -> None:
    """A message is one line whatever the value."""
    with pytest.raises(ConfigurationError) as caught:
        _profile(sessions="/a\n\x1b" + "b" * 9000)
    assert "\n" not in caught.value.message
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 300


def test_a_file_is_selected_with_its_directories() -> None:
    """The walk tests a directory by its own path before it enters it."""
    compiled = _compiled()
    assert compiled.selects_file("agents/main/wire.jsonl")
    assert not compiled.selects_file("logs/a.jsonl")
    assert not compiled.selects_file("agents/a.lock")
    assert not compiled.selects_file("agents.lock/a")


@pytest.mark.parametrize(
    ("path", "relocated"),
    [
        ("session.json", True),
        ("agents/main/wire.jsonl", True),
        ("agents/a.b\n/wire.jsonl", True),
        ("agents/wire.jsonl", False),
        ("agents/a/b/wire.jsonl", False),
        ("agents/main/wireXjsonl", False),
        ("session.json\n", False),
    ],
)
def test_a_star_matches_within_one_segment(path: str, *, relocated: bool) -> None:
    """Everything else in an entry is literal."""
    assert _compiled().is_relocated(path) is relocated
