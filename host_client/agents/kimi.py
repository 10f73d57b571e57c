"""The session format of Kimi Code 2.1.0: one directory per conversation, in a bucket named after the workspace.

Rules were found by running 2.1.0 (`tests/data/kimi/2.1.0`). The hooks run in the sandbox from their source text, so
each stands alone, with what it needs inside. A record keeps every byte but those of the values that name the old place.
"""

import json
import posixpath
import re
from typing import TYPE_CHECKING

from host_client.stores.profile import BundleRoot, SessionBundleProfile

if TYPE_CHECKING:
    from pathlib import PurePosixPath
    from typing import Any

# HOOKS: a hook is one function definition that is shipped alone, with the argument names of its contract; hence its
# length, `id` as a name, and annotations that need no import where it runs.
__all__ = ["PROFILE", "bucket", "relocate", "resume_command", "validate"]


def validate(files: "Any", id: str) -> str | None:  # noqa: A002, ARG001, C901 -- see HOOKS
    """Say why Kimi Code could not resume the session, or would lose a part of it.

    The id in `state.json` is not compared: 2.1.0 goes by the directory's name alone. A bad line at the very end is a
    torn write and costs nothing. A bad line with a good one after it makes 2.1.0 forget, without a word, all that
    follows. A line is bad when JavaScript cannot parse it: NaN is bad, a number of 5,000 digits is not.
    """

    def refuse(constant: str) -> None:
        raise ValueError(constant + " is not JSON")

    def readable(line: str) -> bool:
        try:
            json.loads(line, parse_int=float, parse_constant=refuse)
        except RecursionError:
            return True
        except ValueError:
            return False
        return True

    def decoded(path: str) -> str:
        return (files.bytes(path) or b"").decode("utf-8", "replace").removeprefix("\ufeff")

    if not readable(decoded("state.json")):
        return "state.json is not JSON: Kimi Code would not find the session"
    for path in files.paths():
        if not re.fullmatch(r"agents/[^/]+/wire\.jsonl", path):
            continue
        bad, records = 0, 0
        for number, line in enumerate(decoded(path).split("\n"), 1):
            if not line.removesuffix("\r"):
                continue
            if not readable(line):
                bad = bad or number
                continue
            records += 1
            if bad:
                return f"{path}: line {bad} is not JSON: Kimi Code would forget everything from there on"
        if not records and path == "agents/main/wire.jsonl":
            return f"{path} holds no record: there is no conversation to resume"
    return None


def bucket(cwd: str, helpers: "Any") -> str:
    """Name the bucket of a workspace as Kimi Code 2.1.0 does (`encodeWorkDirKey`)."""
    path = cwd.replace("\\", "/").rstrip("/")
    slug = re.sub(r"[^a-z0-9._-]+", "-", posixpath.basename(path).lower()).strip("-")[:40].strip("-")
    digest: str = helpers.sha256(path)
    return "wd_" + ("workspace" if slug in ("", ".", "..") else slug) + "_" + digest[:12]


def relocate(path: str, text: str, context: "Any") -> str:  # noqa: C901, PLR0915 -- see HOOKS
    """Make one file of the session belong to the workspace `context.cwd` and the directory `context.target`.

    In `state.json` that is `cwd` and each agent's `homedir`; in a wire it is `workspaceId` of `runtime.set_binding`
    (2.1.0 refuses another one) and, in `profile.bind` and `config.update`, the system prompt (replayed as recorded),
    the `cwd` it was made for and the paths of the instruction files it quotes. What was said, and what tools did, in
    the old workspace stays as it was.
    """
    decoder = json.JSONDecoder(parse_int=float)
    origins: list[str] = []

    def skip(within: str, at: int) -> int:
        while within[at : at + 1] in (" ", "\t", "\r", "\n"):
            at += 1
        return at

    def members(within: str, at: int) -> "Any":
        closing = "]" if within[at] == "[" else "}"
        at = skip(within, at + 1)
        while within[at] != closing:
            name = None
            if closing == "}":
                name, at = decoder.raw_decode(within, at)
                at = skip(within, skip(within, at) + 1)
            value, end = decoder.raw_decode(within, at)
            yield name, value, at, end
            at = skip(within, end)
            at = skip(within, at + 1) if within[at] == "," else at

    def find(within: str, at: int, *names: str) -> "Any":
        found: list[tuple[object, int, int]] = [(None, at, at)]
        for wanted in names:
            found = [
                (value, start, end)
                for _, begin, _ in found
                if within[begin] in "{["
                for name, value, start, end in members(within, begin)
                if wanted in (name, "*")
            ]
        return [(value, start, end) for value, start, end in found if isinstance(value, str)]

    def literal(value: str) -> str:
        return json.dumps(value, ensure_ascii=False)

    def moved(value: str, old: str) -> str:
        inside = value == old or value.startswith(old.rstrip("/") + "/")
        return posixpath.join(context.cwd, value[len(old) :].lstrip("/")).rstrip("/") or "/" if inside else value

    def mentions(token: str, old: str) -> "Any":
        # Offsets in the decoded text are led back to the raw token, so that its other escapes stay as they are.
        pieces = re.findall(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|[^\\]", token[1:-1], re.DOTALL)
        offsets, decoded, at = [], [], 1
        for piece in pieces:
            letters = json.loads('"' + piece + '"') if piece[0] == "\\" else piece
            offsets += [at] * len(letters)
            decoded.append(letters)
            at += len(piece)
        offsets.append(at)
        if old == "/":
            pattern = r"""(?<=[`"'])/(?=[`"'])"""
        else:
            pattern = r"(?:(?<![\w/.~@%+-])|(?<=://))" + re.escape(old) + r"(?![\w@%+~-])(?!\.\w)"
        for match in re.finditer(pattern, "".join(decoded)):
            yield offsets[match.start()], offsets[match.end()]

    def prompted(line: str, at: int) -> "Any":
        # An update may come without the directory: it is then the one that was disclosed before.
        disclosed = find(line, at, "environmentDisclosure", "cwd")
        origins.extend(value for value, _, _ in disclosed if value.startswith("/"))
        if not origins:
            return []
        # An agent that was bound to a folder of the workspace goes to the same folder of the new one.
        old = home if home and origins[-1].startswith(home + "/") else origins[-1]
        if old == context.cwd:
            return []
        changes = []
        for value, start, end in [*disclosed, *find(line, at, "agentsMdPaths", "*")]:
            if moved(value, old) != value:
                changes.append((start, end, literal(moved(value, old))))
        for _, start, end in find(line, at, "systemPrompt"):
            token = line[start:end]
            changes += [(start + a, start + b, literal(context.cwd)[1:-1]) for a, b in mentions(token, old)]
        return changes

    def decoded(line: str) -> "Any":
        at = skip(line, 1 if line.startswith("\ufeff") else 0)
        try:
            return decoder.decode(line[at:]), at
        except (ValueError, RecursionError):
            return None, at

    def changed(line: str) -> str:
        record, at = decoded(line)
        if not isinstance(record, dict):
            return line
        wanted = []
        if path == "state.json":
            wanted = [(place, context.cwd) for place in find(line, at, "cwd")]
            inside = "/" + context.id + "/"
            for place in find(line, at, "agents", "*", "homedir"):
                if inside in place[0]:
                    wanted.append((place, context.target + "/" + place[0].rpartition(inside)[2]))
        elif record.get("type") == "runtime.set_binding":
            name = posixpath.basename(posixpath.dirname(context.target))
            wanted = [(place, name) for place in find(line, at, "workspaceId")]
        changes = [(start, end, literal(new)) for (old, start, end), new in wanted if old != new]
        if record.get("type") in ("profile.bind", "config.update"):
            changes = prompted(line, at)
        parts, end = [], 0
        for start, stop, new in sorted(changes):
            parts += [line[end:start], new]
            end = stop
        return "".join([*parts, line[end:]])

    if path == "state.json":
        return changed(text)
    state, _ = decoded(context.files.text("state.json") or "")
    home = str(state.get("cwd") or "").rstrip("/") if isinstance(state, dict) else ""
    return "\n".join(changed(line) for line in text.split("\n"))


def resume_command(conversation_id: str, sandbox_workspace: "PurePosixPath") -> list[str]:  # noqa: ARG001 -- as every format
    """Give the command that goes on with the conversation; it must be run in the workspace."""
    return ["kimi", "-S", conversation_id]


PROFILE = SessionBundleProfile(
    format="kimi",
    root=BundleRoot(directory=".kimi-code", variable="KIMI_CODE_HOME"),
    sessions="sessions",
    buckets=True,
    include=re.compile(""),
    exclude=re.compile(r"^(?:logs|tasks|cron|notify)(?:/|$)|(?:^|/)[^/]*\.lock$"),
    required=("state.json", "agents/main/wire.jsonl"),
    relocated=("state.json", "agents/*/wire.jsonl"),
    validate=validate,
    bucket=bucket,
    relocate=relocate,
    logs=re.compile(r"^agents/[^/]+/wire\.jsonl$"),
)
