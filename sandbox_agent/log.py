"""The daemon's log: one line per event on stderr, as text or JSON.

A line never holds content of a session, nor a path or message that could, unless the operator asked for debugging.
"""

from __future__ import annotations

import json
import logging
import time
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOGGER = logging.getLogger("sandbox_agent")


def set_up(*, as_json: bool, debug: bool) -> None:
    """Send all records of the process to stderr; records of libraries from warnings on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter(as_json=as_json, debug=debug))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    _LOGGER.setLevel(logging.DEBUG if debug else logging.INFO)


def info(event: str, **fields: object) -> None:
    """Log what happened as a matter of course."""
    _LOGGER.info(event, extra={"fields": fields})


def warning(event: str, **fields: object) -> None:
    """Log what works, with a drawback."""
    _LOGGER.warning(event, extra={"fields": fields})


def debug(event: str, **fields: object) -> None:
    """Log what may name paths and messages; nothing, unless asked for."""
    _LOGGER.debug(event, extra={"fields": fields})


def failure(event: str, error: BaseException, **fields: object) -> None:
    """Log an error that nobody foresaw, with where it came from."""
    _LOGGER.error(event, exc_info=error, extra={"fields": fields})


class _Formatter(logging.Formatter):
    def __init__(self, *, as_json: bool, debug: bool) -> None:
        super().__init__()
        self._as_json = as_json
        self._debug = debug

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = dict(getattr(record, "fields", {}))
        if record.name != _LOGGER.name:
            fields["logger"] = record.name
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields["error"] = type(error).__name__
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        moment = f"{seconds}.{int(record.msecs):03d}Z"
        level = record.levelname.lower()
        if self._as_json:
            if error is not None:
                fields["traceback"] = self._traceback(error)
            return json.dumps({"time": moment, "level": level, "event": record.getMessage(), **fields}, default=str)
        line = f"{moment} {level} {_one_line(record.getMessage())}{_text(fields)}"
        return line if error is None else f"{line}\n{self._traceback(error)}"

    def _traceback(self, error: BaseException) -> str:
        """Return the stack; the error's own text, which may quote a path or content, only when debugging."""
        if self._debug:
            return "".join(traceback.format_exception(error)).rstrip()
        return "".join([*traceback.format_tb(error.__traceback__), type(error).__name__])


def _text(fields: Mapping[str, object]) -> str:
    return "".join(f" {name}={_value(str(value))}" for name, value in fields.items())


def _value(text: str) -> str:
    return text if text.isprintable() and text and not set(text) & set(' "=') else json.dumps(text)


def _one_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)
