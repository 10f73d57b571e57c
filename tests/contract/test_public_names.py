"""The public surface: a name added or lost here is a decision, not an accident."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import host_client
from host_client import sync

PUBLIC = [
    "CATALOGUE",
    "AcquireContext",
    "Agent",
    "AgentAdapter",
    "AgentEvent",
    "AgentFeatures",
    "Archive",
    "ArchiveKey",
    "ArchiveReference",
    "AttachmentPart",
    "BundleRoot",
    "CliHarness",
    "Command",
    "CommandResult",
    "Completed",
    "ConfigurationError",
    "ConflictError",
    "ConnectedSandbox",
    "Continuation",
    "Conversation",
    "ConversationContext",
    "ConversationEvent",
    "ConversationFiles",
    "ConversationRecord",
    "ConversationStore",
    "DeadlineError",
    "Delivery",
    "Download",
    "Exit",
    "FailureEvent",
    "FileInfo",
    "Finding",
    "FinishedEvent",
    "FollowUpdate",
    "FunctionRule",
    "Holder",
    "Info",
    "Inspection",
    "LeftOut",
    "LimitError",
    "Limits",
    "LiteralRule",
    "LocalSandboxes",
    "LockSign",
    "MarkPart",
    "Message",
    "Messages",
    "NativeConversationStore",
    "Notice",
    "NoticeEvent",
    "NpmPackage",
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
    "RawEvent",
    "ReadFile",
    "ReasoningEvent",
    "ReasoningPart",
    "RecoveryItem",
    "Redaction",
    "Reference",
    "Related",
    "RelayResult",
    "Relocated",
    "ResolvedHome",
    "RestoreOutcome",
    "ResultEvent",
    "Run",
    "Sandbox",
    "SandboxPlace",
    "SandboxProvider",
    "SessionBundleConversations",
    "SessionBundleProfile",
    "SessionError",
    "SessionSummary",
    "Skipped",
    "Snapshot",
    "TextEvent",
    "TextPart",
    "ToolCallPart",
    "ToolEvent",
    "ToolResultPart",
    "TranscriptConversations",
    "TranscriptFinding",
    "TranscriptFunctions",
    "TranscriptLayout",
    "TranscriptRecoveryItem",
    "TransportConversations",
    "Turn",
    "TurnInput",
    "TurnResult",
    "TurnRunner",
    "UnavailableError",
    "Undone",
    "UndoneTranscript",
    "Usage",
    "UsageEvent",
    "WorkspaceError",
    "agent_names",
    "builtin_agent",
    "builtin_format",
    "connect",
    "create_agent",
    "format_names",
    "inspect_transcript",
    "read_message_file",
    "read_messages",
    "relay",
    "relocate_file",
    "resume_command",
]


def test_the_library_offers_exactly_these_names() -> None:
    """`host_client.__all__` is sorted, complete and importable."""
    assert host_client.__all__ == PUBLIC
    assert all(getattr(host_client, name).__doc__ for name in PUBLIC if name != "CATALOGUE")


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
        "Turn",
        "TurnResult",
        "TurnRunner",
        "connect",
        "relay",
    ]


def test_no_public_signature_speaks_grpc() -> None:
    """Nothing public comes from gRPC or protobuf."""
    for name in PUBLIC:
        public = getattr(host_client, name)
        values = tuple(map(type, public.values())) if isinstance(public, Mapping) else ()
        for part in values or get_args(public) or (public,):
            assert part.__module__.split(".")[0] in {"host_client", "sandbox_api"}
