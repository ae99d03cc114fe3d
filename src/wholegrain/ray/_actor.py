"""What runs in an actor: a worker in a thread, and calls that exchange messages with it.

    consumer                                 actor
    fetch(0), fetch(1), fetch(2), ...  --->  each call waits for its turn and for messages
    tell(messages)                     --->  to the worker; `fetch` can carry messages too

Ray may run concurrent calls in any order, so they and the messages are numbered.
"""

import pickle
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from wholegrain._workers import program, worker
from wholegrain._workers.backend import Message
from wholegrain._workers.messages import BEGUN, RECORDS
from wholegrain._workers.transport import Encoder
from wholegrain.ray._blocks import BlockArena, BlockEncoder, Bytes

BLOCK_BYTES = 1 << 16
"""Elements with at least this many bytes of arrays travel in a block of their own."""

# Ray sends results of up to 100 KB in the reply. Larger ones go through the object store, where
# each object costs about as much as copying some megabytes.
_IN_REPLY_BYTES = 90_000
_IN_STORE_BYTES = 1 << 23

_DELIVERY_S = 1.0

Package = tuple[list[bytes], dict[int, Bytes], float]
"""Pickled messages, their blocks, and how long the call waited for the worker."""


class Outbox:
    """Messages of the worker, until calls of `fetch` take them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: deque[tuple[bytes, dict[int, Bytes]]] = deque()
        self._turn = 0
        self._delivered = 0  # How many packages have arrived, as far as it is known.

    def put(self, message: bytes, blocks: dict[int, Bytes]) -> None:
        """Add a message."""
        with self._changed:
            self._messages.append((message, blocks))
            self._changed.notify_all()

    def take(self, number: int) -> Package:
        """Wait for messages, and for the calls before call `number`; return some messages.

        Small messages travel together in the reply. Messages with blocks travel together up to
        8 MB, because their memory is released together.
        """
        since = time.perf_counter()
        with self._changed:
            while self._turn != number or not self._messages:
                self._changed.wait()
            waited = time.perf_counter() - since
            package: list[bytes] = []
            blocks: dict[int, Bytes] = {}
            nbytes = 0
            while self._messages:
                message, its_blocks = self._messages[0]
                nbytes += len(message) + sum(map(len, its_blocks.values()))
                limit = _IN_STORE_BYTES if blocks or its_blocks else _IN_REPLY_BYTES
                if package and nbytes > limit:
                    break
                self._messages.popleft()
                package.append(message)
                blocks |= its_blocks
            self._turn += 1
            self._changed.notify_all()
            return package, blocks, waited

    def confirm(self, count: int) -> None:
        """Record that the first `count` packages have arrived."""
        with self._changed:
            self._delivered = max(self._delivered, count)
            self._changed.notify_all()

    def wait_until_delivered(self) -> None:
        """Wait until all messages have arrived, or for a second."""
        deadline = time.monotonic() + _DELIVERY_S
        with self._changed:
            while self._messages or self._delivered < self._turn:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)


class Inbox:
    """Messages of the consumer, put in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._early: dict[int, bytes] = {}
        self._turn = 0
        self._ready: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def put(self, number: int, message: bytes) -> None:
        """Add the message with a number."""
        with self._lock:
            self._early[number] = message
            while self._turn in self._early:
                self._ready.put(self._early.pop(self._turn))
                self._turn += 1

    def get(self) -> Message:
        """Wait for the next message."""
        message: Message = pickle.loads(self._ready.get())
        return message


class WorkerActor:
    """An actor that runs one worker. The process ends when the worker ends.

    Args:
        job: The pickled settings of the worker.
        copy: Describes `content`.
        content: The program. It is read-only in the object store, shared by all actors of a node.
    """

    def __init__(self, job: bytes, copy: program.ProgramCopy, content: Any) -> None:
        self._outbox = Outbox()
        self._inbox = Inbox()
        self._arena = BlockArena()
        threading.Thread(
            target=self._run, args=(job, copy, content), name="wholegrain-worker", daemon=True
        ).start()

    def _run(self, job: bytes, copy: program.ProgramCopy, content: Any) -> None:
        worker.run(
            pickle.loads(job),
            self._send,
            self._inbox.get,
            lambda: program.load(copy, content),
            self._make_encoder,
        )

    def _make_encoder(self) -> Encoder:
        return BlockEncoder(self._arena, BLOCK_BYTES)

    def _send(self, message: Message) -> None:
        blocks = {}
        if message[0] == RECORDS:
            blocks = {
                block: self._arena.view(block)
                for _, record_blocks, _ in message[3]
                for block in record_blocks
                if isinstance(block, int)
            }
        self._outbox.put(pickle.dumps(message, 5), blocks)
        if message[0] == BEGUN:
            # If the next element kills this process, what was not delivered is lost with it, and
            # an element before it would be blamed.
            self._outbox.wait_until_delivered()

    def delivered(self, count: int) -> None:
        """Record that the first `count` packages have arrived."""
        self._outbox.confirm(count)

    def where(self) -> dict[str, Any]:
        """Return where the actor runs."""
        import os

        import ray

        context = ray.get_runtime_context()
        return {
            "node_id": context.get_node_id(),
            "address": ray.util.get_node_ip_address(),
            "pid": os.getpid(),
        }

    def fetch(self, number: int, told: Sequence[tuple[int, bytes]]) -> Package:
        """Pass messages to the worker, and return its next messages."""
        self.tell(told)
        return self._outbox.take(number)

    def tell(self, told: Sequence[tuple[int, bytes]]) -> None:
        """Pass messages, each with its number, to the worker."""
        for number, message in told:
            self._inbox.put(number, message)
