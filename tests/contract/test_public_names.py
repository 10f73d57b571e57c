"""The public surface: a name added or lost here is a decision, not an accident."""

from __future__ import annotations

import host_client
from host_client import sync

PUBLIC = [
    "BundleRoot",
    "Completed",
    "ConfigurationError",
    "ConflictError",
    "Conversation",
    "ConversationContext",
    "ConversationFiles",
    "ConversationRecord",
    "ConversationStore",
    "DeadlineError",
    "Delivery",
    "Exit",
    "FileInfo",
    "Finding",
    "FollowUpdate",
    "FunctionRule",
    "Holder",
    "Info",
    "Inspection",
    "LeftOut",
    "LimitError",
    "Limits",
    "LiteralRule",
    "LockSign",
    "NativeConversationStore",
    "Notice",
    "Offender",
    "OutpostError",
    "Output",
    "PatternRule",
    "Place",
    "Process",
    "ProcessError",
    "ProcessState",
    "Processes",
    "Progress",
    "ReadFile",
    "RecoveryItem",
    "Redaction",
    "Reference",
    "Related",
    "RelayResult",
    "Relocated",
    "ResolvedHome",
    "RestoreOutcome",
    "Run",
    "Sandbox",
    "SandboxPlace",
    "SessionBundleConversations",
    "SessionBundleProfile",
    "SessionError",
    "SessionSummary",
    "Skipped",
    "TranscriptConversations",
    "TranscriptFinding",
    "TranscriptFunctions",
    "TranscriptLayout",
    "TranscriptRecoveryItem",
    "UnavailableError",
    "Undone",
    "UndoneTranscript",
    "WorkspaceError",
    "builtin_format",
    "connect",
    "format_names",
    "inspect_transcript",
    "relay",
    "relocate_file",
    "resume_command",
]


def test_the_library_offers_exactly_these_names() -> None:
    """`host_client.__all__` is sorted, complete and importable."""
    assert host_client.__all__ == PUBLIC
    assert all(getattr(host_client, name).__doc__ for name in PUBLIC)


def test_the_blocking_facade_offers_exactly_these_names() -> None:
    """`host_client.sync.__all__`."""
    assert sync.__all__ == [
        "Bundles",
        "Conversations",
        "Files",
        "Process",
        "Processes",
        "Sandbox",
        "Transcripts",
        "connect",
        "relay",
    ]


def test_no_public_signature_speaks_grpc() -> None:
    """Nothing public comes from gRPC or protobuf."""
    for name in PUBLIC:
        assert getattr(host_client, name).__module__.split(".")[0] in {"host_client", "sandbox_api"}
