"""The `wholegrain` command."""
