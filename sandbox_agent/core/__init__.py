"""The daemon's work on the file system. Blocking, and free of gRPC and protobuf."""
