"""Importing the package in a fresh interpreter, with warm caches."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from harness import Benchmark
from harness.declare import Epoch

benchmark = Benchmark("`import` in a fresh interpreter, warm caches")
case = benchmark.case("import", unit="import", measures="seconds", digest_items=0)

CODE = """
import time
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""


def imports(module: str) -> Epoch:
    def epoch(number: int) -> Iterator[float]:
        command = [sys.executable, "-c", CODE.format(module=module)]
        yield float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    return epoch


@case.competitor("wholegrain", "grain", "torch")
def package(module: Any) -> Epoch:
    return imports(module.__name__)


@case.competitor("wholegrain", name="numpy")
def only_numpy(_: Any) -> Epoch:
    return imports("numpy")


case.target(at_most=0.25)
