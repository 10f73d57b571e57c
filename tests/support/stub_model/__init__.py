"""A model for the real CLIs to talk to: on loopback, without a mind, and with a log of all it was told.

`StubModel` serves; `conversation` decides what to answer, whatever the API; one module per API reads requests and words
answers. A further API is a module with the same three functions and a line in `server.APIS`.
"""

from support.stub_model.server import StubModel

__all__ = ["StubModel"]
