"""The contract's services: check, translate, call the core in a thread, translate back."""
