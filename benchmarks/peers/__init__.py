"""What ours is measured against; each peer is a subject of `benchmarks.harness`."""
