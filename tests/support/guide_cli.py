"""The fictional `mycli` of the guides, as a program: it counts what it was told, and keeps a transcript of that."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM = """#!{python}
import json, os, pathlib, sys, uuid

folder = pathlib.Path(os.environ["HOME"], ".mycli/sessions")
words = sys.argv[1:]

def lines(conversation_id):
    path = folder / (conversation_id + ".jsonl")
    if not path.exists():
        sys.exit("no such session")
    return [json.loads(line) for line in path.read_text().splitlines()]

def write(conversation_id, told):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / (conversation_id + ".jsonl"), "a") as file:
        file.write("".join(json.dumps(line) + "\\n" for line in told))

def tell(**event):
    print(json.dumps(event), flush=True)

if words[0] == "fork":
    child = str(uuid.uuid4())
    write(child, lines(words[1]))
    print(child)
elif words[0] == "tokens":
    tell(**{"in": 10 * len(lines(words[1])), "out": len(lines(words[1]))})
else:
    said = sys.stdin.read()
    own = words[2] if words[1:2] == ["--resume"] else str(uuid.uuid4())
    before = lines(own) if words[1:] else []
    write(own, [{"cwd": os.getcwd(), "text": said}])
    tell(session=own)
    if said == os.environ.get("MYCLI_FAILS_AT"):
        sys.exit(1)
    tell(text="told %d: " % (len(before) + 1))
    tell(text=said)
    tell(**({"done": True} if os.environ.get("MYCLI_COLOR") == "never" else {"text": ""}))
"""


def write_guide_cli(folder: Path) -> Path:
    """Write `mycli` into a folder for PATH, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "mycli"
    program.write_text(_PROGRAM.replace("{python}", sys.executable))
    program.chmod(0o755)
    return program
