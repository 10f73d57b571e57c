"""The exceptions of the client: the tree both halves share, under the client's own name.

```
OutpostError
├── SessionError         the session's content or state forbids the operation
├── ProcessError         a command failed to start or to end well
├── ConfigurationError   the caller asked for something that cannot be meant
├── ConflictError        somebody else's state or change is in the way
├── WorkspaceError       a path is unsafe or cannot be used
├── LimitError           a limit of the product or of the machine was reached
├── DeadlineError        time ran out
└── UnavailableError     the daemon cannot be used
```

Each has `code`, `reason`, `message`, `hint`, `facts`, `offenders`, `retryable` and `exit_status`. No other class leaves
the client on purpose: what gRPC or the operating system report is translated.
"""

from __future__ import annotations

from sandbox_api.errors import (
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
    printable,
)

__all__ = [
    "ConfigurationError",
    "ConflictError",
    "DeadlineError",
    "LimitError",
    "Offender",
    "OutpostError",
    "ProcessError",
    "SessionError",
    "UnavailableError",
    "WorkspaceError",
    "printable",
]
