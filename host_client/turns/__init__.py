"""Turns of coding agents: a sandbox, one run of the agent's command line in it, and its conversation kept."""
