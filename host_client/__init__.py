"""The client: capture, keep and restore coding-agent conversations through daemons in sandboxes."""
