"""The client: capture, keep and restore coding-agent conversations through daemons in sandboxes.

Start with `connect(target)` and a store such as `builtin_format("kimi")`; `host_client.sync` is the same for programs
that block. What is listed here is the public surface; modules below may move.
"""

import importlib
from typing import TYPE_CHECKING

from host_client.agents.adapter import AgentAdapter, AgentFeatures, Command, CommandResult, Continuation, TurnInput
from host_client.agents.catalogue import CATALOGUE, Archive, Download, NpmPackage
from host_client.agents.event import (
    AgentEvent,
    ConversationEvent,
    FailureEvent,
    FinishedEvent,
    NoticeEvent,
    RawEvent,
    ReasoningEvent,
    ResultEvent,
    TextEvent,
    ToolEvent,
    UsageEvent,
)
from host_client.agents.harness import Agent, CliHarness, create_agent
from host_client.agents.message import (
    AttachmentPart,
    MarkPart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from host_client.agents.message_reading import Messages, read_message_file, read_messages
from host_client.agents.registry import agent_names, builtin_agent, builtin_format, format_names, resume_command
from host_client.agents.usage import Usage
from host_client.errors import (
    ConfigurationError,
    ConflictError,
    DeadlineError,
    LimitError,
    Offender,
    OutpostError,
    ProcessError,
    SessionError,
    UnavailableError,
    WorkspaceError,
)
from host_client.fleet.executor import restore_through
from host_client.fleet.job import ArchiveSource, RestoreJob
from host_client.fleet.restore import restore_many
from host_client.fleet.retry import Retry
from host_client.sandbox.daemon import Finding, Info, ResolvedHome
from host_client.sandbox.file import FileInfo, ReadFile
from host_client.sandbox.place import LeftOut, Place, RecoveryItem, SessionSummary, Undone
from host_client.sandbox.process import Process
from host_client.sandbox.process_exit import Completed, Exit, Output, ProcessState
from host_client.sandbox.process_run import Run
from host_client.sandbox.processes import Processes
from host_client.sandbox.progress import Progress
from host_client.sandbox.sandbox import Sandbox, connect
from host_client.sandbox.transcript import Holder, TranscriptRecoveryItem, UndoneTranscript
from host_client.session.inspect import Inspection, TranscriptFinding, inspect_transcript
from host_client.session.redaction import FunctionRule, LiteralRule, PatternRule, Redaction
from host_client.session.relocate_file import Relocated, relocate_file
from host_client.stores.archive import TransportConversations
from host_client.stores.archive_index import Snapshot
from host_client.stores.archive_key import ArchiveKey
from host_client.stores.archive_maintenance import ArchivedConversation, ConversationArchive
from host_client.stores.archive_prune import PruneReport
from host_client.stores.archive_read import ArchiveReference
from host_client.stores.archive_stats import ArchiveStats, ConversationStats
from host_client.stores.archive_survey import ConversationName, SnapshotName
from host_client.stores.archive_verify import ArchiveFinding, VerifiedConversation, VerifyReport
from host_client.stores.bundle import SessionBundleConversations
from host_client.stores.context import ConversationContext
from host_client.stores.contract import (
    ConversationRecord,
    ConversationStore,
    FollowUpdate,
    NativeConversationStore,
    Notice,
    RestoreOutcome,
)
from host_client.stores.delivery import Delivery, DeliveryProgress
from host_client.stores.layout import (
    Conversation,
    ConversationFiles,
    Reference,
    Related,
    SandboxPlace,
    Skipped,
    TranscriptFunctions,
    TranscriptLayout,
)
from host_client.stores.profile import BundleRoot, SessionBundleProfile
from host_client.stores.relay import RelayResult, relay
from host_client.stores.transcript import TranscriptConversations
from host_client.transports.contract import ObjectInfo, StoredObject, Transport
from host_client.transports.local import LocalTransport
from host_client.transports.url import open_transport
from host_client.turns.provider import AcquireContext, ConnectedSandbox, LocalSandboxes, SandboxProvider
from host_client.turns.result import TurnResult
from host_client.turns.runner import TurnRunner
from host_client.turns.turn import Turn
from sandbox_api.limits import Limits
from sandbox_api.lock import LockSign

if TYPE_CHECKING:
    from host_client.transports.objects import ObjectTransport

__all__ = [
    "CATALOGUE",
    "AcquireContext",
    "Agent",
    "AgentAdapter",
    "AgentEvent",
    "AgentFeatures",
    "Archive",
    "ArchiveFinding",
    "ArchiveKey",
    "ArchiveReference",
    "ArchiveSource",
    "ArchiveStats",
    "ArchivedConversation",
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
    "ConversationArchive",
    "ConversationContext",
    "ConversationEvent",
    "ConversationFiles",
    "ConversationName",
    "ConversationRecord",
    "ConversationStats",
    "ConversationStore",
    "DeadlineError",
    "Delivery",
    "DeliveryProgress",
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
    "LocalTransport",
    "LockSign",
    "MarkPart",
    "Message",
    "Messages",
    "NativeConversationStore",
    "Notice",
    "NoticeEvent",
    "NpmPackage",
    "ObjectInfo",
    "ObjectTransport",
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
    "PruneReport",
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
    "RestoreJob",
    "RestoreOutcome",
    "ResultEvent",
    "Retry",
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
    "SnapshotName",
    "StoredObject",
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
    "Transport",
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
    "VerifiedConversation",
    "VerifyReport",
    "WorkspaceError",
    "agent_names",
    "builtin_agent",
    "builtin_format",
    "connect",
    "create_agent",
    "format_names",
    "inspect_transcript",
    "open_transport",
    "read_message_file",
    "read_messages",
    "relay",
    "relocate_file",
    "restore_many",
    "restore_through",
    "resume_command",
]


def __getattr__(name: str) -> object:
    """Load what is costly when it is asked for: `ObjectTransport`, with the library of object stores."""
    if name == "ObjectTransport":
        return importlib.import_module("host_client.transports.objects").ObjectTransport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
