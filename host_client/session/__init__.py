"""Bundles and transcripts as data: pure, no connection."""
