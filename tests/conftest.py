"""How the tests run."""

from hypothesis import HealthCheck, settings

# Threads and a busy machine make timings vary, so no example has a deadline.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}

settings.register_profile("default", max_examples=100, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("thorough", max_examples=2000, **_COMMON)  # type: ignore[arg-type]
settings.load_profile("default")
