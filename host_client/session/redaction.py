"""Rules that say which secrets must not be saved on the host, and what they do to one decoded text.

The one rule: no literal secret is left in a text that has passed, nor is one shown by a representation or a message.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from host_client.session.redaction_spelling import spelling
from sandbox_api.errors import ConfigurationError, Offender, SessionError, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MAX_PASSES_COUNT = 8
"""Replacing may make a secret out of what stood around it; a text that still has one after so often goes whole."""


@dataclass(frozen=True, slots=True)
class LiteralRule:
    """A text that must not be saved, wherever it stands in a value, also as JSON inside a text spells it.

    Attributes:
        name: Says in counts and in place of the secret which rule it was: 1 to 64 letters, digits, `_`, `.`, `:`, `-`.
        secret: The text.
        replacement: What stands in its place; None: `[redacted:NAME]`.
    """

    name: str
    secret: str = field(repr=False)
    replacement: str | None = None


@dataclass(frozen=True, slots=True)
class PatternRule:
    r"""What a pattern finds in a value; it sees the decoded value, or a line or file that is not JSON as it is.

    Attributes:
        name: As in `LiteralRule`.
        pattern: Compiled from a text. Where it matches nothing but a position, nothing happens.
        replacement: As in `LiteralRule`; it stands there as it is, `\1` means nothing.
    """

    name: str
    pattern: re.Pattern[str] = field(repr=False)
    replacement: str | None = None


@dataclass(frozen=True, slots=True)
class FunctionRule:
    """A function that is given each decoded string, or a line or file that is not JSON, after all other rules.

    Attributes:
        name: As in `LiteralRule`.
        function: Returns the text to keep instead, or None to keep it. Its answer must depend on the text alone: it is
            not asked again for a text it has seen.
    """

    name: str
    function: Callable[[str], str | None] = field(repr=False)


Rule = LiteralRule | PatternRule | FunctionRule


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of a text that goes, and what comes for it."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True)
class Redaction:
    """Rules that are applied to a conversation before anything of it is saved on the host.

    All literals and patterns look at a value as it came; what they find is replaced, overlapping finds together by
    the replacement of the first. Then functions are asked, in their order. A literal that came about by this is
    replaced as well. It can be pickled when its functions can.

    Attributes:
        rules: What to look for; with none, nothing changes.
        binary: What becomes of a file that is not text: `refuse` fails the capture with `redaction_unsupported`,
            `pass` saves it unchanged, secrets included.

    Raises:
        ConfigurationError: `invalid_argument`: a rule cannot be meant. The message names the rule, never its secret.
    """

    rules: Sequence[Rule]
    binary: Literal["refuse", "pass"] = "refuse"
    _literals: tuple[tuple[LiteralRule, re.Pattern[str]], ...] = field(init=False, repr=False, compare=False)
    _patterns: tuple[PatternRule, ...] = field(init=False, repr=False, compare=False)
    _functions: tuple[FunctionRule, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rules = tuple(self.rules)
        if self.binary not in ("refuse", "pass"):
            raise ConfigurationError("invalid_argument", "binary of a redaction is neither 'refuse' nor 'pass'")
        for number, rule in enumerate(rules, 1):
            _check(rule, number)
        names = [rule.name for rule in rules]
        if doubles := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigurationError("invalid_argument", f"several redaction rules have the name {doubles[0]!r}")
        literals = tuple((rule, spelling(rule.secret)) for rule in rules if isinstance(rule, LiteralRule))
        for number, rule in enumerate(rules, 1):
            if any(pattern.search(text) for text in (rule.name, _replacement(rule)) for _, pattern in literals):
                raise ConfigurationError(
                    "invalid_argument",
                    f"the name or replacement of redaction rule {number} holds a literal secret",
                    hint="give it another name or replacement=",
                )
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "_literals", literals)
        object.__setattr__(self, "_patterns", tuple(rule for rule in rules if isinstance(rule, PatternRule)))
        object.__setattr__(self, "_functions", tuple(rule for rule in rules if isinstance(rule, FunctionRule)))

    @property
    def secrets(self) -> Sequence[str]:
        """The literal secrets."""
        return [rule.secret for rule, _ in self._literals]

    @property
    def reads_all(self) -> bool:
        """Whether every value must be looked at: patterns and functions cannot be searched for in raw bytes."""
        return bool(self._patterns or self._functions)

    def redact(self, text: str, counts: Counter[str], *, is_string: bool = True) -> str:
        """Return the text as it may be saved.

        Args:
            text: A decoded value, or what is not JSON.
            counts: Each rule's hits are added.
            is_string: Ask functions too: they are not for numbers and paths.

        Raises:
            ConfigurationError: `invalid_argument`: a function failed or returned what is no text.
        """
        spans = list(self._found(text, counts))
        for rule in self._patterns:
            spans += _spans(rule, rule.pattern, text, counts)
        changed = _replaced(text, spans) if spans else text
        if is_string:
            for function in self._functions:
                changed = _called(function, changed, counts)
        return self._without_literals(changed, counts) if changed is not text else text

    def redact_path(self, path: str) -> str:
        """Return a path as it may be told and saved: functions are not asked, and hits are not counted."""
        return self.redact(path, Counter(), is_string=False)

    def check_names(self, names: Iterable[str]) -> None:
        """Refuse names in which a literal or pattern has a hit: they cannot be changed, since files refer to them.

        Raises:
            SessionError: `redaction_unsupported`, with all such names, redacted.
        """
        offenders = []
        for name in names:
            counts: Counter[str] = Counter()
            shown = self.redact(name, counts, is_string=False)
            if shown != name:
                offenders.append(Offender(printable(shown), f"the name has a hit of {', '.join(sorted(counts))}"))
        if offenders:
            raise SessionError(
                "redaction_unsupported",
                f"{len(offenders)} name(s) hold what the redaction hides",
                hint="rename them in the sandbox, or narrow the rule",
                offenders=offenders,
            )

    def _found(self, text: str, counts: Counter[str]) -> Iterator[_Span]:
        for rule, pattern in self._literals:
            yield from _spans(rule, pattern, text, counts)

    def _without_literals(self, text: str, counts: Counter[str]) -> str:
        """Replace what became a literal by replacing, until there is none."""
        for _ in range(_MAX_PASSES_COUNT):
            spans = list(self._found(text, counts))
            if not spans:
                return text
            text = _replaced(text, spans)
        for rule, pattern in self._literals:
            if pattern.search(text):
                return _replacement(rule)
        return text


def _check(rule: Rule, number: int) -> None:
    """Refuse a rule that cannot be meant; rules are often written without a type checker."""
    if not isinstance(rule, LiteralRule | PatternRule | FunctionRule):
        raise _refused(number, "is no LiteralRule, PatternRule or FunctionRule")
    if not _is_text(rule.name) or not _NAME.fullmatch(rule.name):
        raise _refused(number, "has no name of 1 to 64 letters, digits, '_', '.', ':' or '-'")
    if isinstance(rule, FunctionRule):
        if not callable(rule.function):
            raise _refused(number, "has a function that cannot be called")
        return
    if rule.replacement is not None and not _is_text(rule.replacement):
        raise _refused(number, "has a replacement that is no text")
    if isinstance(rule, LiteralRule):
        if not _is_text(rule.secret) or not rule.secret:
            raise _refused(number, "has a secret that is empty or no text")
    elif not _is_text(getattr(rule.pattern, "pattern", None)):
        raise _refused(number, "has no pattern that was compiled from a text")
    elif rule.pattern.match(""):
        raise _refused(number, "has a pattern that matches the empty text")


def _is_text(value: object) -> bool:
    """Tell whether a value is text that UTF-8 can spell: a lone surrogate is not."""
    try:
        return isinstance(value, str) and bool(value.encode("utf-8") or True)
    except UnicodeEncodeError:
        return False


def _refused(number: int, problem: str) -> ConfigurationError:
    # By number: a wrong name may be the secret, given in the wrong place.
    return ConfigurationError("invalid_argument", f"redaction rule {number} {problem}")


def _replacement(rule: Rule) -> str:
    if isinstance(rule, FunctionRule) or rule.replacement is None:
        return f"[redacted:{rule.name}]"
    return rule.replacement


def _spans(rule: Rule, pattern: re.Pattern[str], text: str, counts: Counter[str]) -> Iterator[_Span]:
    for found in pattern.finditer(text):
        if found.end() > found.start():
            counts[rule.name] += 1
            yield _Span(found.start(), found.end(), _replacement(rule))


def _replaced(text: str, spans: list[_Span]) -> str:
    """Return the text with spans replaced, those that overlap by the replacement of the first, the longest of it."""
    spans.sort(key=lambda span: (span.start, -span.end))
    parts: list[str] = []
    end = 0
    for span in spans:
        if not parts or span.start >= end:
            parts += [text[end : span.start], span.replacement]
        end = max(end, span.end)
    return "".join([*parts, text[end:]])


def _called(rule: FunctionRule, text: str, counts: Counter[str]) -> str:
    try:
        answer: object = rule.function(text)
    except Exception as error:  # noqa: BLE001 - a foreign function; what it says may hold the secret
        problem = f"raised {type(error).__name__}"
    else:
        if answer is None or answer == text:
            return text
        if isinstance(answer, str):
            counts[rule.name] += 1
            return answer
        problem = f"returned {type(answer).__name__} and not a text or None"
    raise ConfigurationError("invalid_argument", f"the function of the redaction rule {rule.name!r} {problem}")
