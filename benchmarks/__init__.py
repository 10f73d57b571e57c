"""Ours and its peers, measured side by side in one run (`make bench`)."""
