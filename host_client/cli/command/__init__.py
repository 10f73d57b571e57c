"""One module per command of `outpost`."""
