"""The same names as `wholegrain.experimental`."""

from wholegrain.experimental import *  # noqa: F403
