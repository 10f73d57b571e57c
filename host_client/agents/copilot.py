"""The session format of GitHub Copilot CLI 1.0.102: one directory per conversation below `session-state`.

Rules were found by running 1.0.102 (`tests/data/copilot/1.0.102`). The hooks run in the sandbox from their source text,
so each stands alone, with what it needs inside. Files keep every byte but those of the values that name the old place.
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
__all__ = ["PROFILE", "relocate", "resume_command", "validate"]


def validate(files: "Any", id: str) -> str | None:  # noqa: A002, C901, PLR0911, PLR0912 -- see HOOKS
    """Say why Copilot could not resume the session, or would report another one.

    `workspace.yaml` must be the flat mapping that Copilot writes: 1.0.102 ends with status 1 and not a word when it
    cannot read it, so a torn or damaged one is named here. In `events.jsonl` bad lines and a torn tail are tolerated,
    as Copilot does; without a single `session.start` it has nothing to load.
    """
    silent = ": Copilot would end without a message"
    text = files.text("workspace.yaml")
    if text is None:
        return "workspace.yaml is not UTF-8 text"
    values: dict[str, str] = {}
    key = ""
    for number, line in enumerate(text.split("\n"), 1):
        place = f"workspace.yaml: line {number} "
        if not line.strip() or line[0] in "#-" or line.strip() == "...":
            continue  # blank, a comment, the mark of a document, or the items of a list
        if line[0] in " \t":
            values[key] = (values.get(key, "") + " " + line.strip()).strip()
            continue
        entry = re.fullmatch(r"""(["']?)([A-Za-z_][\w.-]*)\1[ \t]*:(?:[ \t]+(.*?))?[ \t\r]*""", line)
        if not entry or entry[2] in values:
            return place + ("repeats " + entry[2] if entry else "is no 'key: value'") + silent
        key, value = entry[2], entry[3] or ""
        values[key] = value
        if value[:1] in ("'", '"'):
            if not re.match(r"""'(?:[^']|'')*'|"(?:[^"\\]|\\.)*\"""", value):
                return place + "opens a quote that it does not close" + silent
        elif value[:1] not in "|>&*!{[" and re.search(r":(?:[ \t]|$)", re.split(r"(?:^|[ \t])#", value)[0]):
            return place + "needs quotes" + silent
    for key in ("cwd", "git_root", "repository", "branch", "name"):
        if re.fullmatch(r"~|null|true|false|[-+]?[.\d][\d_.eE+-]*|", values.get(key, "text"), re.IGNORECASE):
            return f"workspace.yaml: {key} is no text{silent}"
    for key in ("created_at", "updated_at"):
        if key in values and not re.match(r"""["']?\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d""", values[key]):
            return f"workspace.yaml: {key} is no time, as in a file cut short{silent}"
    if values.get("id", "").strip("\"'") != id:
        return f"workspace.yaml is of session {values.get('id', '(none)')}, not of {id}"
    begun = []
    for line in (files.bytes("events.jsonl") or b"").decode("utf-8", "replace").removeprefix("\ufeff").split("\n"):
        try:
            event = json.loads(line, parse_int=float)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and event.get("type") == "session.start" and isinstance(event.get("data"), dict):
            begun.append(str(event["data"].get("sessionId")))
    if not begun:
        return "events.jsonl holds no session.start: there is no conversation to resume"
    return None if id in begun else f"events.jsonl is of session {begun[0]}, not of {id}"


def relocate(path: str, text: str, context: "Any") -> str:  # noqa: C901, PLR0915 -- see HOOKS
    """Make one file of the session belong to the workspace `context.cwd` and the directory `context.target`.

    `workspace.yaml`: `cwd`, which decides where tools run, and `git_root`. `events.jsonl`: the context of
    `session.start` and `session.resume`, where it lies in the directory the conversation last ran in. The rewind index:
    the paths of files below the old workspace, the old git root and the old session directory, with their hex forms and
    the keys made from them; without these 1.0.102 takes each file for one that the user has edited and restores none.

    The git root: at or below the workspace it moves with it. Above it (the workspace is a folder of a repository) it
    stays above when the new workspace ends in the same folders, `/w/repo/api` to `/v/repo/api`; else nobody knows where
    the new repository begins, and it becomes the workspace itself. Copilot finds it anew when it resumes.
    """
    decoder = json.JSONDecoder(parse_int=float)

    def skip(within: str, at: int) -> int:
        while within[at : at + 1] in (" ", "\t", "\r", "\n"):
            at += 1
        return at

    def members(within: str, at: int) -> "Any":
        closing = "]" if within[at] == "[" else "}"
        at = skip(within, at + 1)
        while within[at] != closing:
            name, begin, stop = None, at, at
            if closing == "}":
                name, stop = decoder.raw_decode(within, at)
                at = skip(within, skip(within, stop) + 1)
            value, end = decoder.raw_decode(within, at)
            yield name, (name, begin, stop), (value, at, end)
            at = skip(within, end)
            at = skip(within, at + 1) if within[at] == "," else at

    def find(within: str, at: int, *names: str) -> "Any":
        found: list[tuple[object, int, int]] = [(None, at, at)]
        for wanted in names:
            found = [
                value
                for _, begin, _ in found
                if within[begin] in "{["
                for name, _, value in members(within, begin)
                if wanted in (name, "*")
            ]
        return found

    def literal(value: str) -> str:
        return json.dumps(value, ensure_ascii=False)

    def spliced(within: str, changes: "Any") -> str:
        parts, at = [], 0
        for start, end, new in sorted(changes):
            parts += [within[at:start], new]
            at = end
        return "".join([*parts, within[at:]])

    def moved(value: str, pairs: "Any") -> str:
        for old, new in pairs:
            if value == old or value.startswith(old.rstrip("/") + "/"):
                return posixpath.join(new, value[len(old) :].lstrip("/")).rstrip("/") or "/"
        return value

    def new_root(root: str, cwd: str) -> str:
        below = posixpath.relpath(cwd, root) if root[:1] == cwd[:1] == "/" else "."
        if below == "." or below.split("/")[0] == "..":
            return moved(root, [(cwd, context.cwd)])
        return context.cwd.removesuffix("/" + below) or "/"

    def entry(key: str, within: str) -> "Any":
        # One value of the flat mapping: its text and the bytes it occupies, whichever way it is written.
        start = re.search(rf"""^(["']?){key}\1[ \t]*:(?=\s)(?:[ \t]*\r?\n(?=[ \t]+\S))?[ \t]*""", within, re.MULTILINE)
        if not start:
            return None
        rest = within[start.end() :]
        quoted = re.match(r"""'(?:[^']|'')*'|"(?:[^"\\]|\\.)*\"""", rest, re.DOTALL)
        block = re.match(r"[|>][^\n]*(?:\n(?:[ \t]+\S[^\r\n]*|[ \t\r]*(?=\n)))+", rest)
        plain = re.match(r"(?:(?![ \t]+#|[ \t\r]*$).)*(?:\r?\n[ \t]+[^\s#][^\r\n]*)*", rest, re.MULTILINE)
        token = next(found[0] for found in (quoted, block, plain) if found)
        value = re.sub(r"\s*\n\s*", "\n" if token[:1] == "|" else " ", token)
        if block:
            value = value.rstrip()[1:].lstrip("+-0123456789 \t\n")
        elif token[:1] == "'":
            value = value[1:-1].replace("''", "'")
        elif quoted:
            value = re.sub(r"\\(x..|u....|U.{8}|.)", unescaped, value[1:-1])
        return value, start.end(), start.end() + len(token)

    def unescaped(match: "Any") -> str:
        code = match[1]
        if len(code) > 1:
            return chr(int(code[1:], 16))
        names = dict(zip("0abtnvfreN_LP", "\0\a\b\t\n\v\f\r\x1b\x85\xa0\u2028\u2029", strict=True))
        return str(names.get(code, code))

    def scalar(value: str) -> str:
        # Written as Copilot writes it: plain where YAML allows it, in single quotes, or escaped.
        if re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", value):
            return re.sub(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda m: f"\\u{ord(m[0]):04x}", literal(value))
        plain = value[:1] == "/" and not re.search(r":(?:\s|$)|\s#|\s$", value)
        return value if plain else "'" + value.replace("'", "''") + "'"

    def workspace() -> str:
        cwd, root = entry("cwd", text), entry("git_root", text)
        changes = [(cwd[1], cwd[2], scalar(context.cwd))] if cwd and cwd[0] != context.cwd else []
        if cwd and root and new_root(root[0], cwd[0]) != root[0]:
            changes.append((root[1], root[2], scalar(new_root(root[0], cwd[0]))))
        return spliced(text, changes)

    def decoded(line: str) -> "Any":
        at = skip(line, 1 if line.startswith("\ufeff") else 0)
        try:
            return decoder.decode(line[at:]), at
        except (ValueError, RecursionError):
            return None, at

    def events() -> str:
        lines, places, origin = text.split("\n"), {}, ""
        for number, line in enumerate(lines):
            event, at = decoded(line)
            if isinstance(event, dict) and event.get("type") in ("session.start", "session.resume"):
                for _, begin, _ in find(line, at, "data", "context"):
                    cwds = [place for place in find(line, begin, "cwd") if str(place[0])[:1] == "/"]
                    roots = [place for place in find(line, begin, "gitRoot") if str(place[0])[:1] == "/"]
                    places[number] = (cwds, roots)
                    origin = cwds[-1][0] if cwds else origin
        for number, (cwds, roots) in places.items():
            if any((value + "/").startswith(origin.rstrip("/") + "/") for value, _, _ in cwds):
                wanted = [(place, moved(place[0], [(origin, context.cwd)])) for place in cwds]
                wanted += [(place, new_root(place[0], origin)) for place in roots]
                changes = [(start, end, literal(new)) for (old, start, end), new in wanted if old != new]
                lines[number] = spliced(lines[number], changes)
        return "\n".join(lines)

    def rewind() -> str:
        index, top = decoded(text)
        held = context.files.text("workspace.yaml") or ""
        cwd, root = entry("cwd", held), entry("git_root", held)
        if not isinstance(index, dict) or not cwd:
            return text
        pairs = [(cwd[0], context.cwd)]
        if root and root[0] + context.cwd.removeprefix(new_root(root[0], cwd[0])) == cwd[0]:
            pairs.append((root[0], new_root(root[0], cwd[0])))
        session = re.compile(r"(?:/.*)?/session-state/" + re.escape(context.id) + r"(?=/|$)")

        def placed(value: str) -> str:
            own = session.match(value)
            return context.target + value[own.end() :] if own else moved(value, pairs)

        wanted = []
        for _, begin, _ in find(text, top, "snapshots", "*", "files"):
            for _, key, (file, at, _) in members(text, begin):
                name = file.get("path") if isinstance(file, dict) else None
                if isinstance(name, str) and key[0] == context.helpers.sha256(name)[:32]:
                    wanted.append((key, context.helpers.sha256(placed(name))[:32]))
                plain = [*find(text, at, "path"), *find(text, at, "*", "resolvedPath")]
                wanted += [(place, placed(place[0])) for place in plain if isinstance(place[0], str)]
                for place in find(text, at, "*", "encodedPath", "data"):
                    if re.fullmatch(r"(?:[0-9a-f]{2})+", str(place[0])):
                        name = bytes.fromhex(place[0]).decode("utf-8", "surrogateescape")
                        wanted.append((place, placed(name).encode("utf-8", "surrogateescape").hex()))
        return spliced(text, [(start, end, literal(new)) for (old, start, end), new in wanted if old != new])

    if path == "workspace.yaml":
        return workspace()
    return events() if path == "events.jsonl" else rewind()


def resume_command(conversation_id: str, sandbox_workspace: "PurePosixPath") -> list[str]:
    """Give the command that goes on with the conversation.

    Never `--session-id`: 1.0.102 begins a new conversation, without a word, when it does not find that id.
    """
    return ["copilot", "-C", str(sandbox_workspace), "--resume", conversation_id]


PROFILE = SessionBundleProfile(
    format="copilot",
    root=BundleRoot(directory=".copilot", variable="COPILOT_HOME"),
    sessions="session-state",
    include=re.compile(""),
    exclude=re.compile(r"^inuse\.[^/]*$|^[^/]*\.lock$|\.db-(?:wal|shm)$"),
    required=("events.jsonl", "workspace.yaml"),
    relocated=("events.jsonl", "workspace.yaml", "rewind-file-snapshots/index.json"),
    validate=validate,
    relocate=relocate,
    logs=re.compile(r"^events\.jsonl$"),
    lock=re.compile(r"^inuse\.(?P<pid>\d+)\.lock$"),
)
