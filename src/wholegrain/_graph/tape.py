"""What a thread is doing in stages that have a clock."""

from __future__ import annotations

import threading
from typing import Any

from wholegrain._read.waiting import ThreadTimes


class Tape(threading.local):
    """What a thread spent in stages that have returned, since the current one was entered."""

    below = 0.0
    stage: Any = None
    deep = False
    """Whether all clocks of the thread are looked at in this step, which takes longer."""

    def __init__(self) -> None:
        self.deeply_below = ThreadTimes()


tape = Tape()
