"""Connections to daemons: the only part of the client that speaks gRPC."""
