"""The `wholegrain` command."""

from wholegrain._cli.main import main as main
