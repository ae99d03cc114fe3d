"""Which element, if any, is to blame for the deaths of workers.

A worker that dies is replaced, and the replacement continues after the last element that arrived.
It makes the next elements one at a time, and sends `BEGUN` before each of them. So its death shows
which element it was making, if any. An element that kills two such workers is an error. The first
death counts against no element, because that worker may have been far ahead.
"""

from wholegrain._workers.backend import WorkerExit

SINGLY_AFTER_DEATH = 2048
"""How many elements a replacement makes and sends one at a time."""

_MOST_LOSSES = 5
"""How many deaths at one element may have an outside or unknown cause before it is an error."""

_MOST_EARLY_DEATHS = 5


class Suspect:
    """The element that may be the cause of a death.

    Attributes:
        position: Its position, or -1 if there is none.
        is_watched: Whether replacements have to report which element they make.
    """

    __slots__ = ("_losses", "_lost_at", "is_watched", "position")

    def __init__(self) -> None:
        self.position = -1
        self.is_watched = False
        self._lost_at = -1
        self._losses = 0  # How many deaths at `_lost_at` do not count against it.

    def note_death(self, position: int, ended: WorkerExit, has_begun: bool | None) -> bool:
        """Record a death; return whether the element at `position` is the cause, or seems to be.

        Args:
            position: The position of the first element that did not arrive.
            ended: How the worker ended. A death with an outside cause does not count, because all
                workers die with the fork server, for example.
            has_begun: Whether the worker had begun this element; None if it did not report that.
        """
        if not ended.is_blameless:
            self.is_watched = True
        if ended.is_blameless or not has_begun:
            self._losses = self._losses + 1 if self._lost_at == position else 1
            self._lost_at = position
            if self._losses <= _MOST_LOSSES:
                return False
        if self.position == position:
            self.position = -1
            self.is_watched = False
            return True
        self.position = position
        return False


def death_text(ended: WorkerExit, happened: str) -> str:
    """Return the error message for an element at which workers die.

    Args:
        ended: How the last worker ended.
        happened: Sentences that name the element.
    """
    text = f"Worker process was terminated unexpectedly with {ended.reason}. {happened}"
    if ended.hint:
        text += f" {ended.hint}"
    return f"{text}\n{ended.report}" if ended.report else text


def deaths_text(has_begun: bool | None) -> str:
    """Return what workers did repeatedly at an element, for an error message."""
    if has_begun is False:
        return f" {_MOST_LOSSES} times in a row before it could begin with its next"
    return " twice while making the same element: its"


class EarlyDeaths:
    """Deaths of workers of a pool while they were being started.

    Workers that were started in the same round and die together count once.
    """

    def __init__(self) -> None:
        self._count = 0
        self._lost_round = 0
        self._last_exit = ""

    def note(self, started_in: int, reason: str) -> None:
        """Record a death of a worker that was started in the round `started_in`."""
        if started_in > self._lost_round:
            self._lost_round = started_in
            self._count += 1
        self._last_exit = reason

    def forget(self) -> None:
        """Start counting again, because a worker has started."""
        self._count = 0

    def check(self) -> None:
        """Raise if there were too many in a row."""
        if self._count >= _MOST_EARLY_DEATHS:
            self._count = 0
            raise RuntimeError(
                f"Worker process was terminated unexpectedly: {_MOST_EARLY_DEATHS} of them ended"
                f" while they were being started, the last one with {self._last_exit}."
                " The log has all of them. Code that is imported or unpickled there, or"
                " `worker_init_fn`, may have called `sys.exit` or `os._exit`."
            )
