"""Conversation stores: capture, locate and restore conversations of one format."""
