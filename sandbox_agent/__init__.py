"""The daemon: a small gRPC server inside a sandbox that moves session directories and files."""
