"""A conversation as one page for a browser: it needs no network and no script, and runs none.

The one rule: whatever comes from the conversation is made visible and escaped; the page's own policy forbids the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from host_client.agents.message import AttachmentPart, MarkPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from host_client.cli.visible import visible, visible_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from host_client.agents.message import Message, Part

_SHORT_CHARS = 1200
_SHORT_LINES_COUNT = 12
_SUMMARY_CHARS = 120
_OPENING = re.compile(r"^```[^\n`]*\n", re.MULTILINE)
_CLOSING = re.compile(r"^```[ ]*$\n?", re.MULTILINE)

_STYLE = """
:root{color-scheme:light dark;--back:#fbfbfa;--text:#1f2328;--dim:#666c75;--line:#dcdee2;--card:#fff;--code:#f2f3f5;
--user:#1a7f37;--assistant:#0b61c4;--tool:#8a5a00;--system:#8250df;--bad:#c62828}
@media (prefers-color-scheme:dark){:root{--back:#15171a;--text:#e4e6ea;--dim:#9aa1ab;--line:#33373d;--card:#1c1f23;
--code:#262a30;--user:#56d364;--assistant:#6cb6ff;--tool:#e3b341;--system:#c297ff;--bad:#ff8080}}
*{box-sizing:border-box}
body{margin:0 auto;padding:2rem 1rem 4rem;max-width:54rem;background:var(--back);color:var(--text);
font:16px/1.6 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:1.4rem;margin:0 0 .6rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0 0 2rem;font-size:.9rem}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
article{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--role);border-radius:6px;
padding:.7rem 1rem;margin:0 0 .8rem}
article:target{outline:2px solid var(--role)}
.user{--role:var(--user)}.assistant{--role:var(--assistant)}.tool{--role:var(--tool)}.system{--role:var(--system)}
article>header{display:flex;gap:.8rem;align-items:baseline;font-size:.8rem;color:var(--dim);margin-bottom:.3rem}
article>header b{color:var(--role);text-transform:uppercase;letter-spacing:.04em}
article>header a{margin-left:auto;color:inherit;text-decoration:none}
p{margin:.2rem 0;white-space:pre-wrap;overflow-wrap:anywhere}
pre{margin:.4rem 0;padding:.6rem .8rem;background:var(--code);border-radius:4px;white-space:pre-wrap;
overflow-wrap:anywhere;font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
summary{cursor:pointer;font-size:.9rem;color:var(--dim)}
.thought{color:var(--dim);font-style:italic}
.failed pre{border-left:3px solid var(--bad)}.failed summary{color:var(--bad)}
.mark{text-align:center;color:var(--dim);font-size:.9rem;margin:1.6rem 0;border-top:1px dashed var(--line);
padding-top:.4rem}
footer{color:var(--dim);font-size:.85rem;margin-top:2rem}
@media print{body{max-width:none;padding:0;font-size:11pt;background:none}article{border-color:#999}
article>header{break-after:avoid}article>header a{display:none}summary{list-style:none}
details::details-content{content-visibility:visible;display:block;height:auto}}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Heading:
    """What the page says of the conversation.

    Attributes:
        title: Of the page.
        facts: What is told by name, in order; empty values are left out.
        begin: Time of the first message; None: it is not known.
        end: Time of the last message.
        counts: Messages of each role.
    """

    title: str
    facts: Mapping[str, str]
    begin: datetime | None
    end: datetime | None
    counts: Mapping[str, int]


def page_head(heading: Heading) -> str:
    """Return the page up to the first message."""
    counts = ", ".join(f"{count} {role}" for role, count in sorted(heading.counts.items()))
    facts = {
        **heading.facts,
        "begin": _when(heading.begin) if heading.begin else "",
        "end": _when(heading.end) if heading.end else "",
        "messages": f"{sum(heading.counts.values())}" + (f" ({counts})" if counts else ""),
    }
    rows = "".join(f"<dt>{_line(name)}</dt><dd>{_line(value)}</dd>\n" for name, value in facts.items() if value)
    title = _line(heading.title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{title}</h1>\n<dl>\n{rows}</dl>\n</header>\n<main>\n"
    )


def page_message(message: Message, number: int) -> str:
    """Return one message; its anchor is `m` and its number."""
    inner = "".join(_part(part) for part in message.parts)
    if all(isinstance(part, MarkPart) for part in message.parts):
        return f'<div id="m{number}">{inner}</div>\n'
    time = f'<time datetime="{message.time.isoformat()}">{_when(message.time)}</time>' if message.time else ""
    return (
        f'<article id="m{number}" class="{message.role}">\n'
        f'<header><b>{message.role}</b>{time}<a href="#m{number}">#{number}</a></header>\n{inner}</article>\n'
    )


def page_foot(note: str) -> str:
    """Return the end of the page, with a note that may be empty."""
    return f"</main>\n<footer>{_line(note)}</footer>\n</body>\n</html>\n"


def _part(part: Part) -> str:
    if isinstance(part, TextPart):
        return "".join(_blocks(part.text))
    if isinstance(part, ReasoningPart):
        return f'<p class="thought" dir="auto">{_text(part.text)}</p>\n'
    if isinstance(part, ToolCallPart):
        return _folded(f"<code>{_line(part.name)}</code>", part.arguments, "call")
    if isinstance(part, ToolResultPart):
        return _folded("failed" if part.is_error else "output", part.text, "failed" if part.is_error else "result")
    if isinstance(part, AttachmentPart):
        name = f": {_line(part.name)}" if part.name else ""
        return f"<p>[{_line(part.kind)}{name}]</p>\n"
    return f'<p class="mark">{_line(part.word)}: {_line(part.text)}</p>\n'


def _blocks(text: str) -> Iterator[str]:
    """Yield a text; what is fenced in it as code is set as code."""
    at = 0
    # Where one is not closed, none behind it is: the text is read once, whatever it holds.
    while (opening := _OPENING.search(text, at)) and (closing := _CLOSING.search(text, opening.end())):
        yield _paragraph(text[at : opening.start()])
        yield f"<pre>{_text(text[opening.end() : closing.start()])}</pre>\n"
        at = closing.end()
    yield _paragraph(text[at:])


def _paragraph(text: str) -> str:
    told = text.strip("\n")
    return f'<p dir="auto">{_text(told)}</p>\n' if told else ""


def _folded(label: str, text: str, kind: str) -> str:
    """Return a text under a label: a long one is closed."""
    if not text.strip():
        return f'<p class="{kind}">{label}</p>\n'
    lines_count = text.count("\n") + 1
    is_short = len(text) <= _SHORT_CHARS and lines_count <= _SHORT_LINES_COUNT
    first = visible_line(text.strip()[:_SUMMARY_CHARS].partition("\n")[0])
    told = "" if is_short else f" &middot; {lines_count} line(s), {len(text)} characters &middot; {escape(first)}"
    is_open = " open" if is_short else ""
    return f'<details class="{kind}"{is_open}><summary>{label}{told}</summary><pre>{_text(text)}</pre></details>\n'


def _when(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S %Z}"


def _text(text: str) -> str:
    return escape(visible(text))


def _line(text: str) -> str:
    return escape(visible_line(text))
