"""What failures of object stores mean, and that nothing of their text goes on but their word for it."""

from __future__ import annotations

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError, UnauthenticatedError

from host_client.transports.object_failure import store_failure

ANSWER = "Error performing PUT http://h/b?X-Amz-Signature=SECRET in 1ms - Server returned non-2xx status code: "

CASES = [
    (GenericError(f"{ANSWER}503 Service Unavailable: SECRET"), ("unavailable", "store_unreachable", "503")),
    (
        GenericError("Generic S3 error: SECRET HTTP error: error sending request"),
        ("unavailable", "store_unreachable", ""),
    ),
    (
        GenericError(f"{ANSWER}400 Bad Request: <Error><Code>ExpiredToken</Code><Token>SECRET</Token></Error>"),
        ("configuration", "store_access", "ExpiredToken"),
    ),
    (GenericError(f"{ANSWER}403 Forbidden: SECRET"), ("configuration", "store_access", "403")),
    (
        GenericError("request failed for key SECRET (code: AccessDenied)"),
        ("configuration", "store_access", "AccessDenied"),
    ),
    (PermissionDeniedError("SECRET"), ("configuration", "store_access", "")),
    (UnauthenticatedError("SECRET"), ("configuration", "store_access", "")),
    (GenericError("MissingAccount SECRET"), ("configuration", "store_access", "no credentials")),
    (
        GenericError("Error performing PUT http://169.254.169.254/latest/api/token SECRET"),
        ("configuration", "store_access", "no credentials"),
    ),
    (
        GenericError(f"{ANSWER}404 Not Found: <Code>NoSuchBucket</Code> SECRET"),
        ("configuration", "no_such_store", "is not there"),
    ),
    (GenericError(f"{ANSWER}500 x: <Code>SECRET-1234/+=</Code>"), ("unavailable", "store_unreachable", "500")),
    (OSError("SECRET"), ("unavailable", "store_unreachable", "")),
]


@pytest.mark.parametrize(("error", "expected"), CASES)
def test_failures_are_told_by_class_status_and_word(error: Exception, expected: tuple[str, str, str]) -> None:
    """Each is told as what it is to the caller, with the store's name, and never with its text."""
    failure = store_failure(error, "s3://bucket")
    assert (failure.code, failure.reason) == expected[:2]
    assert "s3://bucket" in failure.message
    assert expected[2] in failure.message
    assert "SECRET" not in f"{failure} {failure.facts}"


def test_what_is_missing_from_a_listing_is_the_store() -> None:
    """404 of one object is none of this; 404 of a listing is."""
    error = GenericError(f"{ANSWER}404 Not Found: ")
    assert store_failure(error, "name").reason == "store_unreachable"
    assert store_failure(error, "name", listing=True).reason == "no_such_store"
    assert store_failure(FileNotFoundError(), "name", listing=True).reason == "no_such_store"
