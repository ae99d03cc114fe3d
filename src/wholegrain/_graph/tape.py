"""What a thread is doing in stages that have a clock."""

from __future__ import annotations

import threading
from typing import Any


class Tape(threading.local):
    """What a thread spent in stages that have returned, since the current one was entered."""

    below = 0.0
    below_computing = 0.0
    below_yields = 0
    stage: Any = None
    deep = False
    """Whether the processor's time is looked at in this step: a clock that takes longer."""


tape = Tape()
