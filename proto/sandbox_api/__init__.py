"""The contract both halves share: wire messages, framing, errors, names, limits.

Imports neither half. Whatever the daemon and the client must agree on is defined here once.
"""
