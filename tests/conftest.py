"""How the tests run."""

import os
import signal
import sys

from hypothesis import HealthCheck, settings

# Threads and a busy machine make timings vary, so no example has a deadline.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}

settings.register_profile("default", max_examples=100, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("thorough", max_examples=2000, **_COMMON)  # type: ignore[arg-type]
# A merge is decided by the same examples each time; new ones are looked for while developing.
settings.register_profile("ci", max_examples=60, derandomize=True, **_COMMON)  # type: ignore[arg-type]
# For tests that another environment has run with more examples.
settings.register_profile("repeated", max_examples=25, derandomize=True, **_COMMON)  # type: ignore[arg-type]
settings.load_profile("ci" if os.environ.get("CI") else "default")

# Tests count threads, and some run for more than a second. Those of `wholegrain top`
# switch it on.
os.environ.setdefault("WHOLEGRAIN_TOP", "0")

# Without the GIL, threads replace worker processes. The tests of workers are about processes; those
# of threads ask for them.
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    os.environ.setdefault("WHOLEGRAIN_WORKER_START", "fork")

# `nohup` and many CI systems start programs with Ctrl-C ignored, and so would be all that the tests
# start: those that press it would wait forever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
