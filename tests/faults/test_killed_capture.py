"""Captures of transcripts that are killed while they place their files: old ones or new ones, and it goes on."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client.session.folder import Folder
from host_client.session.placed_file import KnownFile
from host_client.session.transcript_placement import Placement, Placing
from host_client.session.transcript_state import SavedConversation, SavedFile, SavedScan, load, save
from host_client.session.transcript_writer import Staging
from support.conversation import files_below
from support.killed import killed_at

if TYPE_CHECKING:
    from collections.abc import Mapping

MAIN, CHILD, INDEX = (PurePosixPath(name) for name in ("projects/S1.jsonl", "projects/S1/child.jsonl", "index.jsonl"))
OLD = b"one\n" * 1000
TAIL = b"two\n" * 1000
LINE = b'{"id":"S1"}\n'


def state(content: bytes) -> SavedConversation:
    """Return the state of a capture that left that main transcript."""
    file = SavedFile(str(MAIN), len(content), hashlib.sha256(content).digest())
    return SavedConversation(
        "/s", "/", "s", "/o", "/d", {"s": file}, SavedScan(None, None, has_record=True, collected={})
    )


def place(home: Path, *, appends: bool) -> None:
    """Place what a capture has fetched: a child, the main transcript, a line of a shared file; then the state."""
    with Folder.open(home, (), create=False) as folder, Staging(folder) as staging:

        def staged(content: bytes) -> str:
            file = staging.new()
            file.write(content)
            file.finish(durable=True)
            return file.name

        main = Placing(MAIN, staged(TAIL), len(OLD)) if appends else Placing(MAIN, staged(OLD + TAIL))
        child = Placing(CHILD, staged(b"child\n"))
        with Placement(
            lambda steps: Folder.open(home, steps, create=True),
            lambda steps: Folder.open(home, ("aside", *steps), create=True),
            staging,
            durable=True,
        ) as placement:
            placement.place(child)
            placement.place(main)
            placement.add_lines(INDEX, [LINE])
            save(folder, "S1", state(OLD + TAIL), durable=True)
            placement.keep()


def check(files: Mapping[str, bytes], before: Mapping[str, bytes], *, appends: bool) -> None:
    """See that the files are those of before or the new ones, the last ones only with those in front of them."""
    main, child = files.get(str(MAIN)), files.get(str(CHILD))
    assert child in (None, b"child\n")
    if appends:
        assert main is not None
        assert main.startswith(OLD)
        assert (OLD + TAIL).startswith(main)
    else:
        assert main in (before.get(str(MAIN)), OLD + TAIL)
    if main != before.get(str(MAIN)):
        assert child is not None
    if INDEX.name in files:
        assert (main, files[INDEX.name]) in ((OLD + TAIL, LINE), (OLD + TAIL, b""))
    if files.get("S1.json") != before.get("S1.json"):
        assert main == OLD + TAIL


@pytest.mark.parametrize("way", ["new", "replace", "append"])
def test_kill_at_every_step_of_placing(tmp_path: Path, way: str) -> None:
    """Whenever it is killed, each file is the old or the new one; the next capture ends what was begun."""
    model = tmp_path / "model"
    (model / "projects").mkdir(parents=True)
    if way != "new":
        (model / MAIN).write_bytes(OLD)
        with Folder.open(model, (), create=False) as folder:
            save(folder, "S1", state(OLD), durable=False)
    before = files_below(model)
    home, step, was_killed = tmp_path / "home", 0, True
    while was_killed:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(model, home)
        was_killed = killed_at(step, lambda: place(home, appends=way == "append"), lambda _: None)
        found = {path: data for path, data in files_below(home).items() if not path.startswith(".")}
        check(found, before, appends=way == "append")
        place(home, appends=way == "append")
        left = files_below(home)
        with Folder.open(home, (), create=False) as folder:
            assert load(folder, "S1") == state(OLD + TAIL)
        del left["S1.json"]
        assert left == {str(MAIN): OLD + TAIL, str(CHILD): b"child\n", INDEX.name: LINE}
        step += 1
    assert step > 30


OLD_FORM = PurePosixPath("archived/S1.jsonl")


def place_moved(home: Path) -> None:
    """Place what a capture has fetched of a transcript that was moved in the sandbox, as far as it is not done."""
    known = KnownFile(len(OLD), hashlib.sha256(OLD).digest(), ())
    with Folder.open(home, (), create=False) as folder, Staging(folder) as staging:
        file = staging.new()
        file.write(OLD + TAIL)
        file.finish(durable=True)
        with Placement(
            lambda steps: Folder.open(home / "cli", steps, create=True),
            lambda steps: Folder.open(home, ("aside", *steps), create=True),
            staging,
            durable=True,
        ) as placement:
            placement.set_aside(OLD_FORM, known)
            placement.place(Placing(MAIN, file.name))
            save(folder, "S1", state(OLD + TAIL), durable=True)
            placement.keep()


def test_kill_while_an_old_form_gives_way(tmp_path: Path) -> None:
    """Whenever it is killed, there is one copy at most, and the old one is there or set aside; the next one ends it."""
    home, step, was_killed, seen = tmp_path / "home", 0, True, set()
    while was_killed:
        shutil.rmtree(home, ignore_errors=True)
        (home / "cli/archived").mkdir(parents=True)
        (home / "cli" / OLD_FORM).write_bytes(OLD)
        was_killed = killed_at(step, lambda: place_moved(home), lambda _: None)
        copies, aside = files_below(home / "cli"), files_below(home / "aside")
        seen.add(tuple(copies))
        assert copies in ({str(OLD_FORM): OLD}, {}, {str(MAIN): OLD + TAIL})
        assert {**copies, **aside}.get(str(OLD_FORM)) == OLD
        place_moved(home)
        assert files_below(home / "cli") == {str(MAIN): OLD + TAIL}
        assert files_below(home / "aside") == {str(OLD_FORM): OLD}
        step += 1
    assert seen == {(str(OLD_FORM),), (), (str(MAIN),)}
