"""The main job in one run: four real sessions, captured in one sandbox, restored in another, undone.

Run it with `make demo`. The sandboxes are two private homes on this machine; the sessions were recorded with real CLIs.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import tempfile
from pathlib import Path, PurePosixPath

from host_client import ConversationContext, Sandbox, builtin_format, connect, resume_command

RECORDED = Path(__file__).parents[1] / "tests" / "data"
SESSIONS = {
    "claude": ("claude/2.1.332/subagent", ".claude/projects/*/{id}.jsonl", ""),
    "codex": ("codex/0.171.0/fork", ".codex/sessions/*/*/*/rollout-*-{id}.jsonl", ""),
    "copilot": ("copilot/1.0.102/tool", ".copilot/session-state/{id}", "workspace.yaml"),
    "kimi": ("kimi/2.1.0/tool", ".kimi-code/sessions/*/{id}", "state.json"),
}


def say(text: str) -> None:
    """Print a step."""
    print(text, flush=True)  # noqa: T201 - a demonstration talks


def cwd(session: Path, name: str) -> str:
    """Return the working directory that a session's file names first, whether that is YAML or JSON."""
    found = re.search(r'\bcwd"?: ?"?([^"\n]*)', (session / name).read_text())
    return found[1] if found else "none"


async def move(format_name: str, folder: Path) -> None:
    """Carry one recorded session from sandbox A to sandbox B and take the restore back."""
    recorded, pattern, cwd_file = SESSIONS[format_name]
    homes = {name: folder / format_name / name for name in ("a", "b")}
    workspaces = {name: folder / format_name / f"workspace {name}" for name in ("a", "b")}
    shutil.copytree(RECORDED / recorded / "home", homes["a"])
    homes["b"].mkdir()
    for workspace in workspaces.values():
        workspace.mkdir()
    conversation_id = json.loads((RECORDED / recorded / "expected.json").read_text())["session_id"]
    (session,) = homes["a"].glob(pattern.format(id=conversation_id))
    store = builtin_format(format_name)
    say(f"\n== {format_name}: {conversation_id}")
    say(f"   in A      cwd {cwd(session, cwd_file)}")

    async with (
        connect(f"local:{homes['a']},{workspaces['a']}") as a,
        connect(f"local:{homes['b']},{workspaces['b']}") as b,
    ):
        repository, host, other_host = (folder / format_name / name for name in ("repository", "host", "other host"))
        for directory in (repository, host, other_host):
            directory.mkdir()

        def context(sandbox: Sandbox) -> ConversationContext:
            return ConversationContext(sandbox=sandbox, conversation_home=host, repository=repository)

        record = await store.capture(conversation_id, context(a))
        say(f"   captured  {record.files_count} files, {record.bytes_count} bytes, digest {record.digest[:16]}...")
        placed = await store.restore(record, context(b))
        say(f"   restored  {placed.target}")
        say(f"   in B      cwd {cwd(Path(placed.target), cwd_file)}")
        say(f"   resume    {shlex.join(resume_command(format_name, conversation_id, b.root))}")

        # A host whose repository lies where B has its workspace: there nothing needs to be relocated.
        back = await store.capture(
            conversation_id,
            ConversationContext(sandbox=b, conversation_home=other_host, repository=workspaces["b"]),
        )
        if back.digest != placed.digest:
            raise SystemExit(f"the digest in B is {back.digest}, not {placed.digest}")
        say(f"   digests   placed {placed.digest[:16]}..., captured again from B {back.digest[:16]}...: equal")
        again = await store.restore(record, context(b))
        say(f"   again     {'unchanged, nothing was touched' if again.unchanged else 'CHANGED'}")

        with (Path(placed.target) / cwd_file).open("a") as file:
            file.write("\n")
        replaced = await store.restore(record, context(b))
        say(f"   recovery  a changed session was set aside as {replaced.recovery}")
        undone = await store.undo_restore(conversation_id, context(b), replaced.recovery)
        say(f"   undone    it is back in {PurePosixPath(undone.target).parent.name}/, the other one is in recovery now")


async def main() -> None:
    """Move one session of each format."""
    folder = Path(tempfile.mkdtemp(prefix="outpost-demo-"))
    try:
        for format_name in SESSIONS:
            await move(format_name, folder)
    finally:
        shutil.rmtree(folder)
    say("\nAll sessions were carried over, relocated, verified, and a restore was taken back.")


if __name__ == "__main__":
    asyncio.run(main())
