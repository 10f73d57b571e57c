"""What the failure of an object store means.

The one rule: nothing of the store's own text goes on, which may hold parts of requests, but for its word for the error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from host_client.errors import ConfigurationError, UnavailableError

if TYPE_CHECKING:
    from host_client.errors import OutpostError

_STATUS = re.compile(r"status code: (\d{3})\b")
_WORD = re.compile(r"(?:<Code>|\(code: )([A-Za-z]{1,40})(?:</Code>|\))")
_REFUSED: Final = ("401", "403")
_REFUSED_WORDS: Final = frozenset(
    {
        "AccessDenied",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
_MISSING_WORDS: Final = frozenset({"ContainerNotFound", "NoSuchBucket"})
_ACCESS_CLASSES: Final = frozenset({"PermissionDeniedError", "UnauthenticatedError"})
# A cloud machine's own address for credentials: asked when the environment has none.
_NO_CREDENTIALS: Final = ("/latest/api/token", "/latest/meta-data/", "Error performing token request", "MissingAccount")
_MISTAKES: Final = {
    "builder error": ("its endpoint cannot be used", "without TLS it must be allowed: AWS_ALLOW_HTTP=true"),
    "incorrectly configured region": ("its region is another", "name the region of the bucket: ?region=NAME"),
}


def store_failure(error: Exception, name: str, *, listing: bool = False) -> OutpostError:
    """Return the failure that an exception of obstore means.

    Args:
        error: The exception; `FileNotFoundError` only where nothing else can be missing than the store.
        name: Of the store, for people.
        listing: It was not about one object: what is missing is the store.
    """
    text = str(error)
    status = _first(_STATUS, text)
    word = _first(_WORD, text)
    facts = {key: value for key, value in (("status", status), ("store_code", word)) if value}
    said = f" ({word or status})" if facts else ""
    if any(mark in text for mark in _NO_CREDENTIALS):
        return ConfigurationError(
            "store_access",
            f"no credentials for {name} are in the environment",
            hint="set the variables that docs/archives.md names for such a store",
        )
    for mark, (problem, hint) in _MISTAKES.items():
        if mark in text:
            return ConfigurationError("invalid_store", f"{name} cannot be asked: {problem}", hint=hint)
    if type(error).__name__ in _ACCESS_CLASSES or status in _REFUSED or word in _REFUSED_WORDS:
        return ConfigurationError(
            "store_access",
            f"{name} refuses the credentials or the access{said}",
            hint="look at the credentials in the environment, and at what they may do there",
            facts=facts,
        )
    if word in _MISSING_WORDS or (listing and (status == "404" or isinstance(error, FileNotFoundError))):
        return ConfigurationError(
            "no_such_store", f"{name} is not there", hint="create the bucket first, or correct its name", facts=facts
        )
    return UnavailableError(
        "store_unreachable",
        f"{name} cannot be reached, or fails{said}",
        hint="see that its endpoint is right and answers; it is safe to repeat",
        facts=facts,
    )


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""
