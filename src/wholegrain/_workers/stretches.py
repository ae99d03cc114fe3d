"""Stretches of a pipeline, dealt out to however many workers there are, and given in order.

    consumer: next()                 workers: each has a stretch in work, and the next in line
        |                                |
        |  takes the head's elements     |  who is done is given the next one, if there is room
        v                                v
    [ 0..63: all here ][ 64..127: in work ][ 128..191: all here ][ 192..255: in work ] ...

A stretch is a state to go to and a number of elements. Who makes it changes nothing, so workers
can come, go and die: what one has not sent, another makes.

Nothing runs in the background here: when the consumer comes for elements, what has arrived is
taken in, and workers are given as much as keeps them busy until it comes again.
"""

import contextlib
import pickle
import time
from collections import deque
from typing import Any, Protocol, TypeVar

from wholegrain._core.errors import take_no_place
from wholegrain._read.ending import wait_if_exiting
from wholegrain._workers import messages
from wholegrain._workers.client import WorkerClient
from wholegrain._workers.crew import Crew, Member, Stretch
from wholegrain._workers.failures import unpack_error
from wholegrain._workers.inbox import Current, Inbox, discard
from wholegrain._workers.pickling import dumps

T = TypeVar("T")

_STRETCH_S = 10e-3
"""A stretch is made so long that it takes about so much time to make."""

_SMALLEST_DEPTH_S = 50e-3
_LARGEST_DEPTH_S = 1.0
"""Workers are given work for at least, and for at most, so much time."""

_ROOM_BYTES = 4 << 20
_ROOM_ELEMENTS = 8192
"""So many may be ready for each worker, where they are small."""

_LONGEST_STRETCH = 4096
_GROWTH = 4
_PUMP_EVERY_S = 0.5e-3


class Positions(Protocol):
    """States by arithmetic."""

    def left(self, state: Any, /) -> int:
        """Return how many elements follow after `state`."""

    def after(self, state: Any, count: int, /) -> Any:
        """Return the state that many elements after `state`."""


class StretchedIterator(Inbox[T]):
    """Gives the elements of a pipeline in order, made by workers that share it out.

    What a worker runs takes `(state, count, is_last, is_suspect)` for its state: where to start,
    how many elements to make, whether to go on to the end and tell the state there, and whether
    to make one after the other, since one of them may kill it. Its own states are
    `{"next_index": made}` as long as positions follow from that number. Then, or at the end of
    the data, they have `"state"`: where it stands, `"has_ended"`: whether that is the end, and
    `"is_over"`: whether an exception only says so.

    Args:
        crew: The workers.
        positions: What state a number of elements leads to.
        state: Where to start.
        buffer_size: How many finished elements there should be for each worker.
    """

    def __init__(self, crew: Crew, positions: Positions, state: Any, buffer_size: int) -> None:
        super().__init__()
        self._crew = crew
        self._positions = positions
        self._buffer_size = buffer_size
        # Measured: seconds and bytes of an element, and how long the consumer stays away.
        self._seconds: float | None = None
        self._nbytes = 1.0
        self._away_s = 0.0
        self._left_at: float | None = None
        self._pumped_at = 0.0
        self._size = 1
        self._next_number = 1
        self._stand_at(state)

    def _stand_at(self, state: Any) -> None:
        """Forget all stretches; what follows is counted from `state`."""
        self._base = state
        self._length = self._positions.left(state)
        self._planned = 0
        self._has_planned_end = False
        self._ended = False
        self._stretches: deque[Stretch] = deque()
        self._orphans: deque[Stretch] = deque()
        self._numbers: dict[int, Stretch] = {}
        self._given = 0  # Before the current message.
        self._forget()

    # Elements.

    @property
    def _made_by(self) -> str:
        return "A worker"

    @property
    def _has_workers(self) -> bool:
        return bool(self._crew.members)

    def _acknowledge(self, count: int) -> None:
        """Do nothing: workers are told with the next stretch what was taken."""

    def _next_message(self) -> Current:
        """Move on to the next elements; return what `_current` is then."""
        while True:
            try:
                head = self._next_arrived()
                arrived = head.arrived.popleft()
            except Exception as error:
                self._check_open()  # Another thread may have closed it in the middle.
                take_no_place(error)
                raise
            current = self._take_over(head, *arrived)
            if self._closed:
                self._stand_at(self._base)
                self._check_open()
            if current is not None:
                return current

    def _next_arrived(self) -> Stretch:
        """Wait until something has arrived for the first stretch; return that."""
        self._check_open()
        if self._ended:
            raise StopIteration
        now = time.perf_counter()
        if self._left_at is not None:
            self._away_s = max(now - self._left_at, 0.9 * self._away_s)
        if now - self._pumped_at > _PUMP_EVERY_S:
            self._pump()
        while True:
            head = self._stretches[0] if self._stretches else None
            if head is not None and head.arrived:
                self._left_at = time.perf_counter()
                return head
            if head is not None and head.death is not None:
                death, head.death = head.death, None
                self._orphans.appendleft(head)
                raise RuntimeError(death)
            if head is not None and head.is_complete:
                self._numbers.pop(self._stretches.popleft().number)
                continue
            self._wait()

    def _take_over(
        self, head: Stretch, connection: WorkerClient, kind: int, items: Any, marks: Any
    ) -> Current | None:
        self._given += self._current[1]
        if kind == messages.ERROR:
            self._forget()
            self._raise(head, items, marks)
            return None
        self._crew.note_given(len(items))
        return self._hold(connection, kind, items, marks)

    def _raise(self, head: Stretch, packed: bytes | None, mark: int | bytes) -> None:
        """Raise what a worker raised in an element's place, or go where it says it is."""
        if isinstance(mark, int):
            self._given += 1
        else:
            found = pickle.loads(mark)
            if found["has_ended"]:
                self._go_on_from(found["state"])
                self._ended = True
                raise StopIteration
            self._go_on_from(found["state"])
        if packed is None:
            return
        error = unpack_error(packed)
        error.add_note(f"Worker {head.made_by} (process {head.made_by_pid}) raised this.")
        raise error

    # The position.

    def get_state(self) -> Any:
        """Return the state after the last element that was handed out."""
        mark = self._marks[self._cursor - 1] if self._cursor else None
        if isinstance(mark, bytes):
            return pickle.loads(mark)["state"]
        count = self._given + self._cursor
        # Where nothing was made there is nothing to add, and states may have more in them.
        return self._positions.after(self._base, count) if count else self._base

    def set_state(self, state: Any) -> None:
        """Go on from `state`. Workers keep running."""
        self._go_on_from(state)

    def _go_on_from(self, state: Any) -> None:
        self._discard_all()
        self._crew.cancel()
        self._stand_at(state)

    def _discard_all(self) -> None:
        self._drop()
        for stretch in self._stretches:
            for connection, kind, items, _ in stretch.arrived:
                discard(connection, kind, items)

    # Workers.

    def start(self) -> None:
        """Have the workers begin before the first element is asked for."""
        self._check_open()
        if not self._ended:
            self._pump()

    def close(self) -> None:
        """End the workers, without waiting for them. Can be called more than once."""
        if self._closed:
            return
        with contextlib.suppress(Exception):  # It may have been interrupted at any point.
            self._base = self.get_state()
        self._closed = True
        self._crew.close()
        self._stand_at(self._base)

    def _pump(self) -> None:
        """Take in what has arrived, and deal out what there is room for."""
        for member in self._crew.ready(0):
            self._receive(member)
        self._deal()
        self._pumped_at = time.perf_counter()

    def _wait(self) -> None:
        """Wait for something to arrive."""
        self._deal()
        head = self._stretches[0] if self._stretches else None
        for member in self._crew.wait(head):
            self._receive(member)

    def _receive(self, member: Member) -> None:
        connection = member.connection
        member.heard_at = time.perf_counter()
        try:
            while (message := connection.receive_arrived()) is not None:
                self._take(member, message)
                if not connection.is_open:  # It was of no use.
                    return
        except EOFError:
            if not connection.is_open:
                wait_if_exiting()
                self._closed = True
            self._check_open()
            self._disown(self._crew.bury(member))
        except BaseException:
            # Interrupted, perhaps in the middle of a message.
            if connection.is_open and member in self._crew.members:
                self._disown(self._crew.dismiss(member))
            raise
        else:
            if member.is_leaving and not member.queue:
                self._crew.dismiss(member)

    def _disown(self, stretches: list[Stretch]) -> None:
        """Have others make what somebody has not made."""
        for stretch in stretches:
            if isinstance(stretch.last_mark, bytes):
                # How many are left does not follow from how many there are: go on from there.
                stretch.arrived.append((stretch.source, messages.ERROR, None, stretch.last_mark))
                stretch.received += 1
            elif stretch.death is None:
                self._orphans.append(stretch)
        self._orphans = deque(sorted(self._orphans, key=lambda stretch: stretch.start))

    def _take(self, member: Member, message: Any) -> None:
        """Put a message where it belongs."""
        kind, number = message[0], message[1]
        stretch = self._numbers.get(number)
        connection = member.connection
        if kind == messages.ERROR and message[4]:
            self._give_up(member, message[2], is_old=bool(number) and stretch is None)
            return
        if not member.is_set_up:
            self._crew.note_set_up(member)
        if stretch is None:  # From before the last call of `set_state`.
            if kind == messages.RECORDS:
                discard(connection, kind, message[3])
            return
        if kind == messages.END:
            stretch.is_complete = True
            member.finish(stretch)
            if stretch.received:
                self._learn_seconds(message[2] / stretch.received)
            return
        stretch.source = connection
        stretch.made_by, stretch.made_by_pid = member.index, connection.worker_pid
        if kind == messages.ERROR:
            _, _, packed, mark, _ = message
            stretch.received += 1
            stretch.last_mark = mark
            is_over = isinstance(mark, bytes) and pickle.loads(mark)["is_over"]
            stretch.arrived.append((connection, kind, None if is_over else packed, mark))
            return
        items, marks = message[3], message[4]
        stretch.received += len(items)
        stretch.last_mark = marks[-1]
        stretch.arrived.append((connection, kind, items, marks))
        nbytes = connection.nbytes_of(items[0], kind)
        self._nbytes = max(nbytes, self._nbytes + 0.2 * (nbytes - self._nbytes))

    def _give_up(self, member: Member, packed: bytes, is_old: bool) -> None:
        """Raise what a worker raised while it was being set up, or was to go to a state.

        Unless that was before the last call of `set_state`: the worker is of no use all the same.
        """
        index, pid = member.index, member.connection.worker_pid
        self._disown(self._crew.dismiss(member))
        if is_old:
            return
        error = unpack_error(packed)
        error.add_note(f"Worker {index} (process {pid}) raised this while it was being set up.")
        raise error

    # Dealing out.

    def _learn_seconds(self, seconds: float) -> None:
        known = self._seconds
        self._seconds = seconds if known is None else known + 0.3 * (seconds - known)

    def _room(self) -> int:
        """Return how many elements may be ready or on their way."""
        small = min(_ROOM_ELEMENTS, int(_ROOM_BYTES / max(1.0, self._nbytes)))
        each = max(2 * self._buffer_size + 1, small)
        return each * self._crew.wanted * self._crew.room_factor

    def _deal(self) -> None:
        """Give the workers what there is room for."""
        crew = self._crew
        outstanding = self._planned - self._given - self._cursor
        crew.adjust(int(outstanding * self._nbytes))
        seconds = self._seconds
        depth_s = min(max(_SMALLEST_DEPTH_S, 2 * self._away_s), _LARGEST_DEPTH_S)
        while True:
            member = crew.least_busy()
            if member is None:
                return
            if len(member.queue) > 1 and (seconds is None or member.pending * seconds >= depth_s):
                return
            stretch = self._orphans.popleft() if self._orphans else self._new_stretch()
            if stretch is None and not member.queue:
                stretch = self._reclaimed()
            if stretch is None:
                return
            state = self._base
            done = stretch.start + stretch.received
            if done:
                state = self._positions.after(state, done)
            left = stretch.count - stretch.received
            packed = dumps((state, left, stretch.is_last, stretch.is_suspect))
            member.give(stretch, packed)

    def _reclaimed(self) -> Stretch | None:
        """Return what a worker has not come to, for one that has nothing to do."""
        stretch = self._crew.take_from_busiest()
        if stretch is not None:
            # Under another number: if it was begun after all, that is not taken in.
            del self._numbers[stretch.number]
            self._number(stretch)
        return stretch

    def _number(self, stretch: Stretch) -> None:
        stretch.number = self._next_number
        self._next_number += 1
        self._numbers[stretch.number] = stretch

    def _new_stretch(self) -> Stretch | None:
        if self._has_planned_end:
            return None
        outstanding = self._planned - self._given - self._cursor
        room = self._room()
        fitting = _LONGEST_STRETCH
        if self._seconds is not None:
            fitting = max(1, int(_STRETCH_S / max(self._seconds, 1e-9)))
            self._size = max(1, min(fitting, self._size * _GROWTH, _LONGEST_STRETCH))
        size = max(1, min(self._size, room // (2 * self._crew.wanted)))
        if outstanding and outstanding + size > room:
            self._crew.note_full()
            return None
        size = min(size, self._length - self._planned)
        stretch = Stretch(self._planned, size)
        self._number(stretch)
        self._planned += size
        if self._planned >= self._length:
            stretch.is_last = self._has_planned_end = True
        self._stretches.append(stretch)
        return stretch
