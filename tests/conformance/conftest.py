"""Places that keep objects, of every kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.blob_server import BlobServer, blob_server
from support.transport_place import KINDS, SERVERS, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def gs_server() -> Iterator[BlobServer]:
    """Run what speaks as Google's store does, and name it in the environment."""
    with blob_server("gs") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_BASE_URL", server.endpoint)
        patch.setenv("GOOGLE_BEARER_TOKEN", "token")
        yield server


@pytest.fixture(scope="module")
def az_server() -> Iterator[BlobServer]:
    """Run what speaks as Azure's store does."""
    with blob_server("az") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AZURE_SKIP_SIGNATURE", "true")
        yield server


# Of the module: servers must be there before the guards of a test look.
@pytest.fixture(scope="module", params=KINDS)
def plain(request: pytest.FixtureRequest) -> Callable[[], Place]:
    """Make places of one kind."""
    return places(request)


@pytest.fixture(scope="module", params=["local", "s3"])
def shared(request: pytest.FixtureRequest) -> Callable[[], Place]:
    """Make places that several processes reach."""
    return places(request)


def places(request: pytest.FixtureRequest) -> Callable[[], Place]:
    """Return what makes places of the kind that is asked for; its server runs from now on."""
    if request.param in SERVERS:
        request.getfixturevalue(SERVERS[request.param])
    return lambda: KINDS[request.param](request)
