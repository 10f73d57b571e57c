"""The helpers of `session/task.py`, for what works with sandboxes."""

from __future__ import annotations

from host_client.session.task import in_thread, opened_in_thread, task_group, to_its_end

__all__ = ["in_thread", "opened_in_thread", "task_group", "to_its_end"]
