"""Collect everything that forbids an operation on a session, so that one failure can name all of it."""

from __future__ import annotations

from itertools import chain, zip_longest

from sandbox_api.errors import MAX_OFFENDERS_COUNT, LimitError, Offender, SessionError, printable

_MESSAGES = {
    "symlink": "symbolic links are in the session",
    "special_file": "entries of the session are neither files nor directories",
    "unsafe_name": "names in the session cannot be part of a bundle",
    "live_database": "databases of the session have changes outside their main files",
    "max_depth": "directories of the session are nested too deep",
    "changed": "the session changed while it was read",
}
_HINTS = {
    "symlink": "remove them, exclude them in the profile, or leave them out with skip_links",
    "special_file": "remove them, or exclude them in the profile",
    "unsafe_name": "rename them, or exclude them in the profile",
    "live_database": "end the program that has them open, or exclude them in the profile",
    "max_depth": "exclude them in the profile",
    "changed": "try again when the CLI is idle",
}


class Refusal:
    """Offending entries by kind; memory does not grow with their number.

    The kinds in the order in which they become the reason: `symlink`, `special_file`, `unsafe_name`, `live_database`,
    `max_depth` (a limit), `changed`. What another attempt may cure comes last.
    """

    def __init__(self) -> None:
        self._offenders: dict[str, list[Offender]] = {kind: [] for kind in _MESSAGES}
        self._count = 0

    def add(self, kind: str, path: bytes, problem: str) -> None:
        """Note one entry."""
        self._count += 1
        if len(self._offenders[kind]) < MAX_OFFENDERS_COUNT:
            self._offenders[kind].append(Offender(printable(path) or ".", problem))

    def check(self) -> None:
        """Do nothing when no entry was noted.

        Raises:
            SessionError: the first kind met, in the order above; its offenders are of every kind met.
            LimitError: `max_depth`, when that is the first.
        """
        kinds = [kind for kind, offenders in self._offenders.items() if offenders]
        if not kinds:
            return
        reason = kinds[0]
        # One of each kind in turn, so that many of one do not hide another.
        turns = zip_longest(*(sorted(self._offenders[kind], key=str) for kind in kinds))
        named = [offender for offender in chain.from_iterable(turns) if offender is not None][:MAX_OFFENDERS_COUNT]
        family = LimitError if reason == "max_depth" else SessionError
        raise family(
            reason,
            _MESSAGES[reason],
            hint=_HINTS[reason],
            offenders=sorted(named, key=str),
            offender_count=self._count,
        )
