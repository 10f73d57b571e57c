"""What came of many targets: as a document, and for people."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from host_client.cli.output import error_document, error_lines
from host_client.cli.record import notice_documents, notice_notes
from host_client.errors import ConfigurationError, Offender, OutpostError, printable
from host_client.sandbox.target import parse_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from host_client.stores.delivery import Delivery


def check_once(targets: Sequence[str]) -> None:
    """Refuse a target that is given twice: it would be restored to twice at once, for the one or the other to fail.

    Raises:
        ConfigurationError: `invalid_argument`.
    """
    counts = Counter(map(_normal, targets))
    twice = [Offender(printable(target), f"is there {count} times") for target, count in counts.items() if count > 1]
    if twice:
        raise ConfigurationError(
            "invalid_argument", f"{len(twice)} target(s) are listed more than once", offenders=twice
        )


def delivery_state(delivery: Delivery) -> str:
    """Return what came of a target in a word: `restored`, `unchanged` or `failed`."""
    if delivery.outcome is None:
        return "failed"
    return "unchanged" if delivery.outcome.unchanged else "restored"


def delivery_document(delivery: Delivery) -> dict[str, object]:
    """Return what came of a target as plain data."""
    if delivery.error is not None:
        return {"target": str(delivery.target), "error": error_document(delivery.error)}
    document: dict[str, object] = {"target": str(delivery.target), "state": delivery_state(delivery)}
    if delivery.outcome is not None:
        document["session"] = str(delivery.outcome.target)
        document["notices"] = notice_documents(delivery.outcome.notices)
    return document


def delivery_lines(delivery: Delivery) -> Iterator[str]:
    """Tell people what came of a target."""
    if delivery.error is not None:
        told, *more = error_lines(delivery.error)
        yield f"FAILED {delivery.target}: {told}"
        yield from more
    elif delivery.outcome is not None:
        yield f"{delivery_state(delivery)} {delivery.target}: {delivery.outcome.target}"
        for note in notice_notes(delivery.outcome.notices):
            yield f"  {note}"


def exit_status(deliveries: Sequence[Delivery]) -> int:
    """Return the status of the first target that failed, in the order given; 0 when none did."""
    return next((one.error.exit_status for one in deliveries if one.error is not None), 0)


def _normal(target: str) -> str:
    """Return one spelling of a target; one that names no daemon is its own, and fails by itself later."""
    try:
        return str(parse_target(target))
    except OutpostError:
        return target
