"""The daemon: a small gRPC server inside a sandbox that moves session directories and files."""

VERSION = "0.1.0"
"""Version of the distribution. Kept here since reading it from the installed metadata would slow every start."""
