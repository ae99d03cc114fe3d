"""Kills workers, the process that starts them, and whole programs, while pipelines run.

Run as a program: `python -m tests.stress.kills <kills> [seed] [pipelines]`.
Elements have to be those of a run without kills, and nothing may be left behind.
"""

import contextlib
import itertools
import logging
import os
import pickle
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import wholegrain as wg
from tests.workers.processes import descendants, is_running, wait_until, wait_until_gone
from wholegrain._read import forks
from wholegrain._workers.local import launcher
from wholegrain._workers.pool_iterator import PoolIterator
from wholegrain._workers.remote import RemoteIterator

_LENGTH = 600
_TWO = wg.MultiprocessingOptions(num_workers=2)


def _numbers() -> wg.MapDataset[Any]:
    return wg.MapDataset.range(_LENGTH).seed(3).shuffle()


def _array(number: int) -> Any:
    return {"x": np.full(3000 + number % 7, number), "n": number}


def _full(number: int) -> Any:
    return np.full(3000, number)


def _tokens(number: int) -> Any:
    return {"tokens": np.full(1 + number % 50, number)}


def _noisy(element: Any, rng: np.random.Generator) -> Any:
    return element, rng.integers(1 << 30)


class _Twice(wg.experimental.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, element: Any) -> Any:
        return [element, -element]


def _sharded(ds: wg.MapDataset[Any]) -> wg.IterDataset[Any]:
    return ds.to_iter_dataset().mp_prefetch(_TWO)


def _packed() -> Any:
    ds = wg.MapDataset.range(_LENGTH * 4).map(_tokens).to_iter_dataset()
    lengths = {"tokens": 64}
    return wg.experimental.FirstFitPackIterDataset(
        ds, length_struct=lengths, num_packing_bins=4
    ).mp_prefetch(_TWO)


def _interleaved() -> Any:
    parts = [wg.MapDataset.range(n, 4 * _LENGTH, 7).map(_array).to_iter_dataset() for n in range(7)]
    return wg.experimental.InterleaveIterDataset(parts, cycle_length=3).mp_prefetch(_TWO)


def _loader(workers: Any = 2) -> Any:
    return wg.DataLoader(
        data_source=wg.sources.RangeDataSource(0, 1000, 1),
        sampler=wg.samplers.IndexSampler(
            1000, shard_options=wg.sharding.NoSharding(), shuffle=True, num_epochs=2, seed=4
        ),
        operations=[wg.transforms.Batch(4)],
        worker_count=workers,
    )


def _auto() -> wg.MultiprocessingOptions:
    return wg.MultiprocessingOptions(num_workers="auto", max_workers=3)


PIPELINES: dict[str, Callable[[], Any]] = {
    "map": lambda: _sharded(_numbers().map(_array)),
    "small": lambda: _sharded(_numbers().map(lambda n: n)),
    "batch": lambda: _sharded(_numbers().map(_array).map(lambda e: e["n"]).batch(3)),
    "filter": lambda: _sharded(_numbers().filter(lambda n: n % 3 > 0).map(_array)),
    "random_map": lambda: _sharded(_numbers().random_map(_noisy)),
    "flat_map": lambda: wg.experimental.FlatMapIterDataset(
        _numbers().to_iter_dataset(), _Twice()
    ).mp_prefetch(_TWO),
    "window": lambda: wg.experimental.WindowShuffleIterDataset(
        _numbers().map(_array).to_iter_dataset(), window_size=20, seed=5
    ).mp_prefetch(_TWO),
    "packing": _packed,
    "interleave": _interleaved,
    "mix": lambda: _sharded(
        wg.MapDataset.mix([_numbers(), _numbers().map(lambda n: -n)], [0.3, 0.7])
    ),
    "loader": _loader,
    "auto": lambda: (
        _numbers().map(lambda n: np.full(3000, n)).batch(2).to_iter_dataset().mp_prefetch(_auto())
    ),
    "auto_small": lambda: _numbers().map(lambda n: n).to_iter_dataset().mp_prefetch(_auto()),
    "auto_loader": lambda: _loader("auto"),
}


def _is_fair(one: Any) -> bool:
    """Say whether no worker has died at the place where it is: twice would be an error."""
    if isinstance(one, RemoteIterator):
        return one._suspect.position != one._arrived()
    return all(_is_fair_to(worker) for worker in one._pool.workers)


def _is_fair_to(worker: Any) -> bool:
    return worker.is_set_up and not any(
        span.suspect.position == span.start + span.received for span in worker.queue
    )


def _victims() -> list[int]:
    """Return the processes that may be killed: the workers, and the one that starts them."""
    running = [
        one for one in list(forks._in_child) if isinstance(one, (RemoteIterator, PoolIterator))
    ]
    pids: list[int | None] = []
    for one in running:
        if isinstance(one, RemoteIterator):
            pids += [one.worker_pid] if _is_fair(one) else []
        else:
            workers = one._pool.workers
            pids += [m.connection.worker_pid for m in workers if _is_fair_to(m)]
    current: Any = launcher._current.get("fork")
    if hasattr(current, "server_pid") and pids and all(map(_is_fair, running)):
        pids.append(current.server_pid)
    return [pid for pid in pids if pid is not None and is_running(pid)]


def run_with_kills(name: str, kills: int, chance: random.Random) -> int:
    """Read a pipeline again and again while its processes are killed; return how often."""
    ds = PIPELINES[name]()
    expected = [pickle.dumps(element) for element in ds]
    done = 0
    while done < kills:
        it = iter(ds)
        for place, element in enumerate(it):
            assert pickle.dumps(element) == expected[place], (name, place, element)
            if done < kills and chance.random() < 0.5:
                victims = _victims()
                if victims:
                    time.sleep(chance.choice([0, 0, 0, 0.001, 0.004]))
                    # Sometimes several at once: one may be given what another one died of.
                    most = min(len(victims), kills - done)
                    for victim in chance.sample(victims, chance.randint(1, most)):
                        with contextlib.suppress(ProcessLookupError):  # Another took it along.
                            os.kill(victim, signal.SIGKILL)
                            done += 1
        assert place + 1 == len(expected), (name, place)
        it.close()
    return done


def _states(ds: Any, path: str) -> None:
    """Go on from the last state in a file, and add each element with the state after it."""
    it = iter(ds)
    lines = read_lines(path)
    if lines:
        it.set_state(lines[-1][1])
    with open(path, "ab", buffering=0) as file:
        for element in it:
            data = pickle.dumps((element, it.get_state()))
            file.write(len(data).to_bytes(4, "little") + data)


def read_lines(path: str) -> list[Any]:
    """Return what is complete in a file of elements and states; cut off what is not."""
    data = Path(path).read_bytes() if os.path.exists(path) else b""
    lines, start = [], 0
    while start + 4 <= len(data):
        end = start + 4 + int.from_bytes(data[start : start + 4], "little")
        if end > len(data):
            break
        lines.append(pickle.loads(data[start + 4 : end]))
        start = end
    if start < len(data):
        os.truncate(path, start)
    return lines


def _in_shared_memory() -> set[str]:
    return {str(path) for path in Path("/dev/shm").glob("*wholegrain*")}


def _wait_until_removed(files: set[str]) -> None:
    """Wait until shared memory is gone, or in use: then it belongs to another program."""

    def are_left() -> bool:
        left = files & _in_shared_memory()
        for path in Path("/proc").glob("[0-9]*/maps") if left else ():
            with contextlib.suppress(OSError):  # The process has ended, or is another user's.
                mapped = path.read_text()
                left = {name for name in left if name not in mapped}
        return bool(left)

    wait_until(lambda: not are_left())


def run_and_kill_programs(name: str, kills: int, chance: random.Random, path: str) -> int:
    """Kill programs that read a pipeline; each goes on where the last one was killed."""
    ds = PIPELINES[name]()
    expected = [pickle.dumps(element) for element in ds]
    launcher.close_launchers()
    done = 0
    while done < kills:
        shared = _in_shared_memory()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _states(ds, path)
                code = 0
            finally:
                os._exit(code)
        time.sleep(chance.uniform(0.05, 0.6))
        started = descendants(child)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) in (0, -9), (name, status)
        done += 1
        made = _in_shared_memory() - shared
        wait_until_gone(started)
        _wait_until_removed(made)
        lines = read_lines(path)
        assert [pickle.dumps(element) for element, _ in lines] == expected[: len(lines)], name
        if len(lines) == len(expected):
            os.remove(path)
    if os.path.exists(path):
        os.remove(path)
    return done


def main(kills: int, seed: int = 0, names: str = "") -> None:
    """Kill that often in all: one in 20 times the program, else workers or who starts them."""
    logging.disable()  # Each death is told.
    chance = random.Random(seed)
    all_names = names.split(",") if names else list(PIPELINES)
    chance.shuffle(all_names)
    pipelines = itertools.cycle(all_names)
    path = f"/tmp/wholegrain-kills-{os.getpid()}"
    count = programs = 0
    while count < kills:
        name = next(pipelines)
        count += run_with_kills(name, min(19, kills - count - 1), chance)
        count += run_and_kill_programs(name, 1, chance, path)
        programs += 1
    launcher.close_launchers()
    assert not [pid for pid in descendants(os.getpid()) if is_running(pid)]
    print(f"kills: {count}, of these whole programs: {programs}")


if __name__ == "__main__":
    _, how_often, *more = sys.argv
    main(int(how_often), int(more[0]) if more else 0, ",".join(more[1:]))
