"""A made-up coding CLI for tests, run in sandboxes: it does what the text of its turn says.

The text is a JSON list of steps, each a list of its name and arguments. It keeps `$HOME/.mycli/sessions/<id>.jsonl`,
resumes what is there and nothing else, and prints one JSON object per line. `support.scripted_agent` is its adapter.
Nothing but the standard library: the sandbox has no more.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["HOME"]) / ".mycli/sessions"


def tell(**event: Any) -> None:
    """Print an event."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


class Session:
    """The conversation of a run."""

    def __init__(self, conversation_id: str) -> None:
        self.id = conversation_id
        self.path = FOLDER / f"{conversation_id}.jsonl"
        self.is_kept = True

    def keep(self, **line: Any) -> None:
        """Append a line to the transcript."""
        if self.is_kept:
            FOLDER.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps({**line, "cwd": str(Path.cwd())}) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        """Return the transcript."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


def existing(conversation_id: str) -> Session:
    """Return a session that must be there."""
    session = Session(conversation_id)
    if not session.path.exists():
        sys.exit(f"No conversation found with id {conversation_id}")
    return session


def forked(conversation_id: str, child_id: str) -> Session:
    """Return a copy of a session."""
    parent, child = existing(conversation_id), Session(child_id)
    shutil.copyfile(parent.path, child.path)
    return child


def opened(arguments: list[str]) -> Session:
    """Return the session that the arguments name."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    wanted = options.get("--session-id") or str(uuid.uuid4())
    if "--resume" in options:
        return existing(options["--resume"])
    return forked(options["--fork"], wanted) if "--fork" in options else Session(wanted)


def leave_child() -> None:
    """Start a process that leaves the group and keeps standard output open; its number is in the home."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    (Path(os.environ["HOME"]) / "child.pid").write_text(str(child.pid))
    os._exit(0)


def run(session: Session, step: str, *arguments: Any) -> None:  # noqa: C901, PLR0912, PLR0915  one case for each step
    """Do one step."""
    match step, arguments:
        case "say", (text,):
            session.keep(type="assistant", text=text)
            tell(text=text)
        case "tell", (event,):
            tell(**event)
        case "print", (text,):
            sys.stdout.write(text)
            sys.stdout.flush()
        case "bytes", (digits,):
            sys.stdout.buffer.write(bytes.fromhex(digits))
            sys.stdout.flush()
        case "line", (count,):
            sys.stdout.write("x" * count + "\n")
            sys.stdout.flush()
        case "flood", (count,):
            for number in range(count):
                tell(text=f"{number} ")
        case "complain", (text,):
            sys.stderr.write(text + "\n")
        case "tear", ():
            with session.path.open("a") as file:
                file.write('{"type": "assistant", "text": "ha')
        case "count", (sent, received):
            session.keep(type="usage", input=sent, output=received)
        case "recall", ():
            asked = [line["text"] for line in session.lines() if line["type"] == "assistant"]
            tell(text="|".join(asked))
        case "variable", (name,):
            tell(text=os.environ.get(name, "(unset)"))
        case "where", ():
            tell(text=str(Path.cwd()))
        case "touch", (path,):
            Path(path).touch()
        case "await", (path,):
            while not Path(path).exists():
                time.sleep(0.01)
        case "exit", (status,):
            sys.exit(status)
        case "signal", (number,):
            os.kill(os.getpid(), number)
        case "hang", ():
            signal.pause()
        case "insist", ():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case "close", ():
            os.close(1)
            os.close(2)
        case "leave child", ():
            if os.fork() == 0:
                leave_child()
            while not (Path(os.environ["HOME"]) / "child.pid").exists():
                time.sleep(0.01)
        case _:
            sys.exit(f"no such step: {step}")


def main() -> None:
    """Run as told."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["usage"]:
        used = [line for line in existing(arguments[1]).lines() if line["type"] == "usage"]
        tell(input=sum(line["input"] for line in used), output=sum(line["output"] for line in used))
        return
    if arguments[:1] == ["fork"]:
        tell(session=forked(arguments[1], str(uuid.uuid4())).id)
        return
    script = json.loads(sys.stdin.read())
    session = opened(arguments)
    flags = script.pop(0) if isinstance(script[0], dict) else {}
    session.is_kept = not flags.get("unkept")
    session.keep(type="user", text="...")
    if not flags.get("quiet"):
        tell(session=session.id)
    for step in script:
        run(session, *step)


if __name__ == "__main__":
    main()
