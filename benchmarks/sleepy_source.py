"""A source that waits 5 ms for every read, as remote storage does."""

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from harness import Benchmark
from harness.declare import Epoch

READ_S = 0.005
LENGTH = 1_000_000
BUFFER = 500


class SleepySource:
    """Answers every read after 5 ms."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        time.sleep(READ_S)
        return int(index)


benchmark = Benchmark("A source that sleeps 5 ms per read: how much of threads / 5 ms is reached")


def add_case(threads: int) -> None:
    case = benchmark.case(f"{threads} threads", digest_items=200, lead=BUFFER, seconds=1.5)

    @case.competitor("wholegrain", "grain")
    def dataset(grain: Any) -> Epoch:
        options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=BUFFER)
        ds = grain.MapDataset.source(SleepySource())
        return lambda epoch: ds.to_iter_dataset(options)

    @case.competitor("wholegrain", name="plain thread pool")
    def plain_pool(_: Any) -> Epoch:
        def epoch(number: int) -> Iterator[int]:
            source = SleepySource()
            with ThreadPoolExecutor(threads) as pool:
                waiting: deque[Future[int]] = deque()
                for index in range(LENGTH):
                    waiting.append(pool.submit(source.__getitem__, index))
                    if len(waiting) == BUFFER:
                        yield waiting.popleft().result()

        return epoch

    case.constant("ideal", READ_S / threads)
    case.target(over="ideal", at_least=0.95)


add_case(16)
add_case(64)
