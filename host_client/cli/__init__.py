"""The outpost command."""
