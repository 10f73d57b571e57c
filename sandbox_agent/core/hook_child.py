"""The interpreter that runs hooks: started by `hook_process`, one for all hooks of a call.

It is run as a file of its own, without site packages, and imports nothing of the product, so that it starts fast. It
puts limits on itself before it reads anything: memory, processor time, open files, no file written, no core dump, no
process started. Hooks see the builtins and modules that the daemon names. All of this keeps a mistaken hook from doing
harm. It does not hold an author who means harm: the names of a module lead to all of the interpreter, and a limit on
processes does not bind root. The author is the operator of the sandbox, who could run anything there anyway.

Both directions are frames: two lengths, a JSON object, bytes. Standard input and output are the channel at the start
and the null device from then on, so that nothing a hook prints gets into it.
"""

from __future__ import annotations

import builtins
import json
import os
import posixpath
import resource
import struct
import sys

TYPE_CHECKING = False  # type checkers take it for true; `typing` would cost 5 ms at each start
if TYPE_CHECKING:
    from typing import Any

PREFIX = struct.Struct(">II")
"""Lengths in bytes of the JSON object and of the bytes after it."""

PIECE_BYTES = 1 << 20
"""Most bytes in one frame; larger texts take several, so that the daemon's memory stays flat."""

MAX_PATH_CHARACTERS = 4096
"""No file of a session has a longer path."""

_MAX_DESCRIPTORS_COUNT = 16
_MAX_NAME_CHARACTERS = 4096  # a bucket's; the daemon refuses what is over 255 bytes
_MAX_ERROR_CHARACTERS = 1000
_SPARE_SECONDS = 2  # of processor time, after which the kernel ends a child whose daemon is gone


class Channel:
    """Frames to and from the daemon."""

    def __init__(self) -> None:
        self._input = os.fdopen(os.dup(0), "rb")
        self._output = os.fdopen(os.dup(1), "wb")
        null = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.close(null)

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """Return the next frame; end the interpreter when the daemon is gone."""
        lengths = self._input.read(PREFIX.size)
        if len(lengths) < PREFIX.size:
            os._exit(0)
        head_bytes, body_bytes = PREFIX.unpack(lengths)
        return json.loads(self._input.read(head_bytes)), self._input.read(body_bytes)

    def receive_all(self) -> bytearray:
        """Return what a sequence of pieces holds."""
        whole = bytearray()
        while True:
            head, body = self.receive()
            if "end" in head:
                return whole
            whole += body

    def send(self, head: dict[str, Any], body: memoryview | bytes = b"") -> None:
        """Send one frame."""
        packed = json.dumps(head).encode()
        self._output.write(PREFIX.pack(len(packed), len(body)))
        self._output.write(packed)
        self._output.write(body)
        self._output.flush()

    def send_all(self, content: bytes) -> None:
        """Send a sequence of pieces."""
        view = memoryview(content)
        for start in range(0, len(view), PIECE_BYTES):
            self.send({"piece": True}, view[start : start + PIECE_BYTES])
        self.send({"end": True})


class Helpers:
    """What the other two hooks get besides builtins and modules."""

    @staticmethod
    def join(*parts: str) -> str:
        """Put a path together with `/` and normalize it; a later part does not replace what is before it."""
        path = posixpath.normpath("/".join(part for part in parts if part))
        return path[1:] if path.startswith("//") else path

    @staticmethod
    def sha256(text: str) -> str:
        """Return the SHA-256 of a text's UTF-8 in hex."""
        import hashlib  # noqa: PLC0415 -- 5 ms that most hooks do not need

        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class Context:
    """Where a session goes, for `relocate`."""

    def __init__(self, request: dict[str, Any], helpers: Helpers, files: Files) -> None:
        self.id = request["id"]
        self.cwd = request["cwd"]
        self.target = request["target"]
        self.helpers = helpers
        self.files = files


class Files:
    """The files of a session as they came, for `validate` and `relocate`; fetched from the daemon when asked for."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def paths(self) -> list[str]:
        """Return the paths of all files."""
        self._channel.send({"ask": "paths"})
        listed = self._channel.receive_all().decode("utf-8", "surrogateescape")
        return listed.split("\0") if listed else []

    def bytes(self, path: str) -> bytes | None:
        """Return the content of a file, or None when it is not there."""
        content = self._content(path)
        return None if content is None else bytes(content)

    def text(self, path: str) -> str | None:
        """Return the text of a file, or None when it is not there or not UTF-8."""
        content = self._content(path)
        if content is None:
            return None
        try:
            return content.decode()
        except UnicodeDecodeError:
            return None

    def _content(self, path: str) -> bytearray | None:
        if not isinstance(path, str):
            raise TypeError(f"a path is a text, not {type(path).__name__}")
        if len(path) > MAX_PATH_CHARACTERS:
            return None
        self._channel.send({"ask": "file", "path": path})
        head, _ = self._channel.receive()
        return None if "missing" in head else self._channel.receive_all()


class Hooks:
    """The hooks of one profile, each compiled when it is first called."""

    def __init__(self, channel: Channel, setup: dict[str, Any]) -> None:
        self._channel = channel
        self._sources = setup["sources"]
        text = "".join(self._sources.values())
        self._names = {name: __import__(name) for name in setup["modules"] if name in text}
        self._builtins = {name: getattr(builtins, name) for name in setup["builtins"]}
        self._builtins["__build_class__"] = builtins.__build_class__
        self._functions: dict[str, Any] = {}
        self._helpers = Helpers()

    def compiled(self, name: str) -> Any:
        """Return the function of a hook.

        Raises:
            Exception: the text is not one lambda or one function definition that this Python understands.
        """
        if name not in self._functions:
            self._functions[name] = self._compile(self._sources[name], f"<{name} hook>")
        return self._functions[name]

    def _compile(self, source: str, where: str) -> Any:
        future = 0x1000000  # __future__.annotations: a hook's annotations name what is not here
        names = {"__builtins__": self._builtins, "__name__": "hook", **self._names}
        try:
            # A lambda may go over several lines within parentheses.
            expression = compile(f"({source}\n)", where, "eval", flags=future, dont_inherit=True)
        except SyntaxError:
            present = set(names)
            exec(compile(source, where, "exec", flags=future, dont_inherit=True), names)  # noqa: S102 -- its purpose
            found = [names[name] for name in names if name not in present]
        else:
            found = [eval(expression, names)]  # noqa: S307 -- its purpose
        if len(found) != 1 or not callable(found[0]):
            raise SyntaxError("not one lambda or one function definition")
        return found[0]

    def call(self, request: dict[str, Any]) -> None:
        """Run one hook and send its result."""
        name = request["call"]
        if name == "relocate":
            content = self._channel.receive_all()
        try:
            function = self.compiled(name)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 -- a definition runs its decorators and defaults
            self._channel.send({"uncompiled": told(error)})
            return
        if name == "validate":
            problem = function(Files(self._channel), request["id"])
            if problem is not None and (not isinstance(problem, str) or not problem):
                raise TypeError(f"it returned {kind(problem)}, not None or what is wrong")
            self._channel.send({"done": problem and problem[:_MAX_ERROR_CHARACTERS]})
        elif name == "bucket":
            bucket = function(request["cwd"], self._helpers)
            if not isinstance(bucket, str):
                raise TypeError(f"it returned {kind(bucket)}, not the name of a directory")
            self._channel.send({"done": bucket[:_MAX_NAME_CHARACTERS]})
        else:
            # Bytes that are not UTF-8 go through the hook as lone surrogates. A text without such bytes must not come
            # back with any: they would be bytes that were never there.
            try:
                text, errors = content.decode(), "strict"
            except UnicodeDecodeError:
                text, errors = content.decode("utf-8", "surrogateescape"), "surrogateescape"
            del content
            text = function(request["path"], text, Context(request, self._helpers, Files(self._channel)))
            if not isinstance(text, str):
                raise TypeError(f"it returned {kind(text)}, not the new text")
            encoded = str.encode(text, "utf-8", errors)
            del text
            self._channel.send({"done": None})
            self._channel.send_all(encoded)


def kind(value: object) -> str:
    """Name a value's type, or an empty text."""
    return "an empty text" if isinstance(value, str) else f"a value of type {type(value).__name__}"


def told(error: BaseException) -> str:
    """Return the type and text of what a hook raised, as far as they can be had."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 -- the exception is the hook's own, and so is its __str__
        text = type(error).__name__
    return text[:_MAX_ERROR_CHARACTERS]


def limit(memory_bytes: int) -> None:
    """Put limits on this process, for good."""
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_NOFILE: _MAX_DESCRIPTORS_COUNT,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
    }
    for what, most in limits.items():
        hard = resource.getrlimit(what)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (value, value))


def limit_processor(seconds: int) -> None:
    """Grant one hook its processor time, beyond what has been used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    until = int(usage.ru_utime + usage.ru_stime) + seconds + _SPARE_SECONDS
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (until if hard == resource.RLIM_INFINITY else min(until, hard), hard))


def main() -> None:
    """Serve until the daemon closes the channel or a hook fails."""
    limit(int(sys.argv[1]))
    channel = Channel()
    hooks = Hooks(channel, channel.receive()[0])
    while True:
        request, _ = channel.receive()
        limit_processor(request["seconds"])
        try:
            hooks.call(request)
            continue
        except MemoryError:
            failure: dict[str, Any] = {"memory": True}
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 -- whatever a hook raises is reported
            failure = {"failed": told(error)}
        # What the hook held is let go by now: the frame has room.
        channel.send(failure)


if __name__ == "__main__":
    main()
