"""Built-in formats and agents, one file per coding CLI."""
