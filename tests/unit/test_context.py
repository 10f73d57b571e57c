"""What a context tells of itself."""

from __future__ import annotations

from host_client import ConversationContext, RestoreJob


def test_values_of_variables_are_not_shown() -> None:
    """They may be tokens, and executors write what they run into their logs."""
    context = ConversationContext(variables={"NAME": "a-token"})
    job = RestoreJob(target="unix:/run/outpost.sock", format="claude", conversation_id="S1", context=context)
    assert job.context.variables == {"NAME": "a-token"}
    assert "a-token" not in f"{context!r} {job!r} {job}"
