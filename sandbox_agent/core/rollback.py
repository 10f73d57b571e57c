"""Undo the steps of something that failed, last one first, and still report what failed first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox_api.errors import OutpostError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self


class Rollback:
    """Steps to run when the block fails; a context manager. On success none of them runs.

    A step that fails itself becomes a note of the first error, and the other steps run all the same.
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def add(self, step: Callable[[], object]) -> None:
        """Remember how to undo what was just done."""
        self._steps.append(step)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.run(error)

    def run(self, first: BaseException) -> None:
        """Run all steps now because of an error; none runs again."""
        while self._steps:
            try:
                self._steps.pop()()
            except (OSError, OutpostError) as error:
                first.add_note(f"while cleaning up: {error}")
