"""The client for programs without an event loop: the same objects, with methods that block.

```python
with sync.connect("unix:/run/outpost/agent.sock") as sandbox:
    store = sync.Conversations(SessionBundleConversations(profile))
    record = store.capture(conversation_id, sandbox.context(repository=Path(".")))
```

Rules for threads:

- All calls run in one background thread with one event loop, which lives while a sandbox is connected or a call runs.
- Every object here may be used from any thread, by several at the same time; their calls run at the same time.
- Progress callbacks run in the background thread. They must not block and must not call a method of this module.
- An interrupt (Ctrl-C) cancels the call it meets; what a cancelled call leaves behind is what the method says.
- Do not call from a coroutine: that blocks its loop. Do not use a connected sandbox in a forked child.

Methods raise what their asynchronous originals raise, and have the same parameters. Streams of items become sequences,
those without an end iterators.
"""

from host_client.sync.archive import ConversationArchive
from host_client.sync.conversation import Conversations, relay
from host_client.sync.fleet import restore_many, restore_through
from host_client.sync.sandbox import Bundles, Files, Process, Processes, Sandbox, Transcripts, connect
from host_client.sync.turn import Turn, TurnResult, TurnRunner

__all__ = [
    "Bundles",
    "ConversationArchive",
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
    "restore_many",
    "restore_through",
]
