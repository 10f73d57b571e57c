"""The page of a conversation: well formed, self-contained, and safe whatever was said."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from host_client import (
    AttachmentPart,
    MarkPart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from host_client.cli.page import Heading, page_foot, page_head, page_message

TIME = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
VOID = {"meta", "br"}
EVIL = "\"><script>alert(1)</script><img src=x onerror=f()>'&amp;</details></article></pre><style>*{}</style>\u202e\x1b"


class Page(HTMLParser):
    """A page as a browser reads it: its elements, its texts, and whether all are closed."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.opened: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert not self.opened, "elements are left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the element that was opened last; it must be that one."""
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note a text, with the element that it stands in."""
        if self.opened and self.opened[-1] != "style":
            self.texts.append(data)

    def ids(self) -> list[str | None]:
        """Return all anchors."""
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


def page(*messages: Message, facts: dict[str, str] | None = None) -> Page:
    """Make a page of messages and read it."""
    heading = Heading("Conversation x", facts or {"format": "claude"}, TIME, TIME, {"user": len(messages)})
    body = "".join(page_message(message, number) for number, message in enumerate(messages, 1))
    return Page(page_head(heading) + body + page_foot("a note"))


def test_a_page_has_heading_messages_and_anchors() -> None:
    """Format, times, counts, and each message with who said it, when, and an anchor."""
    found = page(
        Message("user", TIME, [TextPart("hello")]),
        Message("assistant", None, [ReasoningPart("hm"), TextPart("hi"), ToolCallPart("Bash", '{"a": 1}')]),
        Message("tool", TIME, [ToolResultPart("out")]),
        Message("system", TIME, [MarkPart("compacted", "the model has a summary")]),
        facts={"format": "claude", "id": "the-id", "path": ""},
    )
    texts = " ".join(found.texts)
    for word in ("Conversation x", "claude", "the-id", "2026-11-30 10:00:00 UTC", "4 (4 user)", "hello", "Bash", "out"):
        assert word in texts
    assert "compacted: the model has a summary" in texts
    assert "path" not in texts
    assert found.ids() == ["m1", "m2", "m3", "m4"]
    assert ("a", {"href": "#m2"}) in found.elements


def test_a_page_loads_and_runs_nothing() -> None:
    """Its policy forbids everything but its own style; no element asks for anything."""
    found = page(Message("user", TIME, [TextPart("see https://example.com/x.png")]))
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": policy}) in found.elements
    names = {tag for tag, _ in found.elements}
    assert names.isdisjoint(("script", "link", "img", "iframe", "object", "embed", "base", "form"))
    values = [value for _, attributes in found.elements for value in attributes.values()]
    assert not any("//" in (value or "") for value in values)


@pytest.mark.parametrize(
    "message",
    [
        Message("user", TIME, [TextPart(EVIL)]),
        Message("user", TIME, [TextPart(f"```{EVIL}\n{EVIL}\n```\n{EVIL}")]),
        Message("user", TIME, [TextPart(f"```\n{EVIL}\n```\n{EVIL}")]),
        Message("assistant", TIME, [ReasoningPart(EVIL)]),
        Message("assistant", TIME, [ToolCallPart(EVIL, EVIL)]),
        Message("assistant", TIME, [ToolCallPart(EVIL, EVIL * 100)]),
        Message("tool", TIME, [ToolResultPart(EVIL, is_error=True)]),
        Message("tool", TIME, [ToolResultPart((EVIL + "\n") * 100)]),
        Message("user", TIME, [AttachmentPart(EVIL, EVIL)]),
        Message("system", TIME, [MarkPart(EVIL, EVIL)]),
    ],
)
def test_whatever_was_said_is_text(message: Message) -> None:
    """Markup in a conversation makes no element and no attribute, and what is hidden is shown."""
    found = page(message, facts={EVIL: EVIL})
    names = {tag for tag, _ in found.elements}
    assert names.isdisjoint(("script", "img"))
    assert [tag for tag, _ in found.elements].count("style") == 1
    assert not any(key.startswith("on") for _, attributes in found.elements for key in attributes)
    text = "".join(found.texts)
    assert "<script>alert(1)</script>" in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert r"\u202e\x1b" in text


def test_a_long_output_is_folded() -> None:
    """A short one is open, a long one closed, with its size and beginning in the summary; one that failed says so."""
    found = page(
        Message("tool", TIME, [ToolResultPart("short")]),
        Message("tool", TIME, [ToolResultPart("first line\n" + "x\n" * 50)]),
        Message("tool", TIME, [ToolResultPart("bad", is_error=True)]),
        Message("tool", TIME, [ToolResultPart("")]),
    )
    folded = [attributes for tag, attributes in found.elements if tag == "details"]
    assert folded == [{"class": "result", "open": None}, {"class": "result"}, {"class": "failed", "open": None}]
    assert any("52 line(s), 111 characters · first line" in text for text in found.texts)


def test_code_between_fences_is_set_as_code() -> None:
    """The text around it stays text, and a fence that is not closed is text as well."""
    found = page(Message("user", TIME, [TextPart("before\n```python\nx = 1\n```\nafter\n```\nopen")]))
    inner = [tag for tag, _ in found.elements if tag in ("p", "pre")]
    assert inner == ["p", "pre", "p"]
    assert "x = 1\n" in found.texts
    assert "after\n```\nopen" in found.texts


def test_fences_that_are_never_closed_cost_no_more_than_text() -> None:
    """A conversation that is full of them is one paragraph, and no search without an end."""
    text = 200_000 * "```x\na\n"
    assert page(Message("user", TIME, [TextPart(text)])).texts.count(text.strip("\n")) == 1
