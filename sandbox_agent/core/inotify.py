"""Learn from the kernel that files change: watches of many subscribers through one inotify instance.

The one rule: an event only says where to look. What is there is always read from the file itself, so that an event
that is lost, late or made up costs time and nothing else.
"""

from __future__ import annotations

import os
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox_agent.core import syscall

if TYPE_CHECKING:
    from collections.abc import Callable

    Key = tuple[int, bytes]

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_FILE = _MODIFY | _ATTRIB | _DELETE_SELF | _MOVE_SELF
_FOLDER = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF

_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_READ_BYTES = 64 << 10


class Watches:
    """All watches of one daemon. Any thread may call it; only `close` must come after everything else.

    Raises:
        OSError: the kernel has no inotify, or the user has too many instances.
    """

    def __init__(self) -> None:
        self.fd = syscall.inotify_init()
        self._lock = threading.Lock()
        self._watched: dict[int, set[tuple[Subscription, Key]]] = {}
        self._subscriptions: set[Subscription] = set()

    def close(self) -> None:
        """End all watches."""
        os.close(self.fd)

    def subscribe(self, wake: Callable[[], None]) -> Subscription:
        """Return a subscription of what to look at; the subscriber closes it.

        Args:
            wake: Called by `deliver`, in its thread, when there is something to look at.
        """
        subscription = Subscription(self, wake)
        with self._lock:
            self._subscriptions.add(subscription)
        return subscription

    def deliver(self) -> None:
        """Take what events there are and wake those concerned; call it when `fd` can be read. It does not wait."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return
        at = 0
        with self._lock:
            woken: set[Subscription] = set()
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                if mask & _OVERFLOW:
                    for subscription in self._subscriptions:
                        subscription.has_missed = True
                    woken |= self._subscriptions
                concerned = self._watched.pop(number, set()) if mask & _IGNORED else self._watched.get(number, ())
                for subscription, key in concerned:
                    subscription.changed.add(key)
                    woken.add(subscription)
                    if mask & _IGNORED:  # the kernel has ended the watch, since what it watched is no more
                        subscription.numbers.pop(key, None)
        for subscription in woken:
            subscription.wake()

    def _watch(self, subscription: Subscription, fd: int, key: Key, mask: int) -> None:
        with self._lock:
            try:
                # The path of a descriptor leads to what it holds, whatever is at its name by now.
                number = syscall.inotify_add_watch(self.fd, b"/proc/self/fd/%d" % fd, mask)
            except OSError:
                subscription.is_complete = False
                return
            if subscription.numbers.get(key) != number:
                self._forget(subscription, key)
                subscription.numbers[key] = number
                self._watched.setdefault(number, set()).add((subscription, key))

    def _forget(self, subscription: Subscription, key: Key) -> None:
        number = subscription.numbers.pop(key, None)
        if number is None:
            return
        concerned = self._watched[number]
        concerned.discard((subscription, key))
        if not concerned:
            del self._watched[number]
            with suppress(OSError):  # the kernel may have ended it, and the event that says so is still to be read
                syscall.inotify_rm_watch(self.fd, number)

    def _take(self, subscription: Subscription) -> set[Key] | None:
        with self._lock:
            changed, subscription.changed = subscription.changed, set()
            has_missed, subscription.has_missed = subscription.has_missed, False
        return None if has_missed else changed

    def _drop(self, subscription: Subscription, keys: list[Key] | None) -> None:
        with self._lock:
            for key in list(subscription.numbers) if keys is None else keys:
                self._forget(subscription, key)
            if keys is None:
                self._subscriptions.discard(subscription)


class Subscription:
    """What one subscriber watches. The attributes are the business of `Watches`, but for `is_complete`.

    Attributes:
        is_complete: False once something could not be watched: the subscriber has to look by itself.
    """

    def __init__(self, watches: Watches, wake: Callable[[], None]) -> None:
        self._watches = watches
        self.wake = wake
        self.numbers: dict[Key, int] = {}
        self.changed: set[Key] = set()
        self.has_missed = False
        self.is_complete = True

    def watch_file(self, fd: int, key: Key) -> None:
        """Watch the file that a descriptor holds; what was watched under the key before is not any more."""
        self._watches._watch(self, fd, key, _FILE)  # noqa: SLF001  one thing in two classes

    def watch_folder(self, fd: int, key: Key) -> None:
        """Watch what comes into and goes from the directory that a descriptor holds."""
        self._watches._watch(self, fd, key, _FOLDER)  # noqa: SLF001

    def forget(self, key: Key) -> None:
        """Watch no longer what is watched under a key, if anything is."""
        self._watches._drop(self, [key])  # noqa: SLF001

    def take(self) -> set[Key] | None:
        """Return the keys of what has changed since the last call; None: it may be anything."""
        return self._watches._take(self)  # noqa: SLF001

    def close(self) -> None:
        """End all its watches."""
        self._watches._drop(self, None)  # noqa: SLF001
