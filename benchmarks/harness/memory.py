"""How much memory a process has, as the operating system sees it."""

from pathlib import Path


def resident_bytes() -> int:
    """Return the resident memory of this process now; 0 where the system does not say."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """Return the most resident memory this process has had; 0 where the system does not say."""
    return _status("VmHWM")


def _status(field: str) -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if field in line)
