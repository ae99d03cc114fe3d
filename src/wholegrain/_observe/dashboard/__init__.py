"""A web page that shows running programs. It knows snapshots, not pipelines."""

from wholegrain._observe.dashboard.server import Dashboard as Dashboard
from wholegrain._observe.dashboard.server import dashboard as dashboard
