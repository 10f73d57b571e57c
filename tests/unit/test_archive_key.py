"""Keys of archives: read from where only their owner reads them, and never shown."""

from __future__ import annotations

import base64
import os
import pickle
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError, OutpostError
from host_client.stores.archive_key import ArchiveKey, archive_key

if TYPE_CHECKING:
    from pathlib import Path

KEY = ArchiveKey(bytes(range(32)))


def _key_file(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_key_is_not_shown() -> None:
    """Neither its text nor its bytes are in what a log or a traceback prints of it."""
    assert repr(KEY) == "ArchiveKey()"
    assert KEY.text not in str(KEY)


def test_keys_are_made_anew() -> None:
    """Two generated keys differ, and so do all that is derived from them."""
    one, other = ArchiveKey.generate(), ArchiveKey.generate()
    assert one != other
    made = {one.key_id, other.key_id, one.name_key, other.name_key, one.content_key, other.content_key}
    assert len(made) == 6
    assert not any(key.secret in (key.name_key, key.content_key) for key in (one, other))


def test_derived_keys_stay_what_they_are() -> None:
    """What was encrypted once is found again by every later version."""
    assert KEY.key_id.hex() == "e7e94d0d55c135f5"
    assert KEY.name_key.hex() == "3cfece594db3c00f677070969c6f8d901be7c08c27ebe7f1421b55d3fe02e899"
    assert KEY.content_key.hex() == "41189a9767fc63d9c54af8736614d7684c32e63cbd7e13de40eefa8465637fda"


def test_a_key_goes_to_other_processes() -> None:
    """It survives pickling, also after something was derived from it."""
    assert KEY.key_id
    assert pickle.loads(pickle.dumps(KEY)) == KEY  # noqa: S301 - our own bytes


@pytest.mark.parametrize("text", [KEY.text, f"{KEY.text}\n", f"  {KEY.text}\r\n"])
def test_a_key_comes_from_a_file(tmp_path: Path, text: str) -> None:
    """White space around the text does not count."""
    assert ArchiveKey.from_file(_key_file(tmp_path, text)) == KEY


def test_a_key_comes_from_a_link(tmp_path: Path) -> None:
    """Secrets are put in place as links by orchestrators."""
    (tmp_path / "link").symlink_to(_key_file(tmp_path, KEY.text))
    assert ArchiveKey.from_file(tmp_path / "link") == KEY


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o602, 0o644])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    """The failure names the file and what to do."""
    with pytest.raises(OutpostError, match="others may read") as caught:
        ArchiveKey.from_file(_key_file(tmp_path, KEY.text, mode))
    assert (caught.value.code, caught.value.reason) == ("workspace", "access")
    assert "chmod 600" in caught.value.hint


def test_the_group_may_read_what_belongs_to_root(tmp_path: Path) -> None:
    """Of a file of anybody else it may not."""
    path = _key_file(tmp_path, KEY.text, 0o640)
    if path.stat().st_uid == 0:
        assert ArchiveKey.from_file(path) == KEY
        os.chown(path, 4711, -1)
    with pytest.raises(OutpostError, match="others may read"):
        ArchiveKey.from_file(path)


@pytest.mark.parametrize(("name", "reason"), [("missing", "not_found"), (".", "not_a_file"), ("pipe", "not_a_file")])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    """Nothing waits for somebody to write to a pipe."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutpostError) as caught:
        ArchiveKey.from_file(tmp_path / name)
    assert (caught.value.code, caught.value.reason) == ("workspace", reason)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        base64.b64encode(bytes(31)).decode(),
        base64.b64encode(bytes(33)).decode(),
        KEY.text[:-1],
        f"{KEY.text}!",
        "ä" * 43,
        bytes(32).hex(),
    ],
)
def test_what_is_no_key_is_refused_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Neither file nor variable gives a key of another length, and no message has what was there."""
    monkeypatch.setenv("OUTPOST_ARCHIVE_KEY", text)
    path = _key_file(tmp_path, text)
    for read in (ArchiveKey.from_environment, lambda: ArchiveKey.from_file(path), lambda: ArchiveKey.from_text(text)):
        with pytest.raises(ConfigurationError) as caught:
            read()
        assert caught.value.reason == "invalid_argument"
        assert not text or text not in str(caught.value)


def test_a_key_comes_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default from `OUTPOST_ARCHIVE_KEY`; a name may be given."""
    monkeypatch.setenv("OUTPOST_ARCHIVE_KEY", KEY.text)
    monkeypatch.setenv("MINE", ArchiveKey(bytes(32)).text)
    assert ArchiveKey.from_environment() == KEY
    assert ArchiveKey.from_environment("MINE") == ArchiveKey(bytes(32))


def test_a_variable_that_is_not_set_is_named() -> None:
    """The failure says which variable it is."""
    with pytest.raises(ConfigurationError, match="NOWHERE") as caught:
        ArchiveKey.from_environment("NOWHERE")
    assert caught.value.reason == "invalid_argument"


def test_a_key_is_given_in_three_ways() -> None:
    """As itself, as a function that returns its bytes, or not at all."""
    assert archive_key(KEY) is KEY
    assert archive_key(lambda: KEY.secret) == KEY
    assert archive_key(None) is None
    with pytest.raises(ConfigurationError, match="32 bytes"):
        archive_key(lambda: b"short")
