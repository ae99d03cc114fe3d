"""Process-wide settings: `wholegrain.config`.

The environment variables `GRAIN_<NAME>` set the initial values.
absl is not needed; a program that uses it may also set the options as `--grain_<name>`.
"""

import os
import sys
from typing import Any

from wholegrain._core.import_hooks import after_import


class UnknownOptionError(AttributeError, ValueError):
    """There is no option of that name."""


class _Option:
    def __init__(
        self, kind: type, default: Any, choices: tuple[Any, ...] = (), optional: bool = False
    ) -> None:
        self.kind = kind
        self.default = default
        self.choices = choices
        self.optional = optional


_OPTIONS = {
    "py_debug_mode": _Option(bool, False),
    "py_dataset_visualization_output_dir": _Option(str, None, optional=True),
    "py_traceback_filtering": _Option(
        str,
        "auto",
        choices=("auto", "off", "tracebackhide", "quiet_remove_frames", "remove_frames"),
    ),
    "py_relay_sigterm_to_main": _Option(bool, False),
    "enable_multiprocess_worker_profiling": _Option(bool, False),
    # Whether to refuse a checkpoint that was written by a pipeline with a different order.
    "check_pipeline": _Option(bool, True),
    # Accepted for programs that set them; they have no effect here, nor in Grain.
    "tf_interleaved_shuffle": _Option(bool, False),
    "tf_interleaved_shuffle_block_size": _Option(int, 10),
    "tf_interleaved_shuffle_parallel_blocks": _Option(int, 10),
    "tf_lookup_batch_size": _Option(int, 100),
    "tf_lookup_num_parallel_calls": _Option(int, -1),
    "tf_lookup_fast_warmup": _Option(bool, False),
    "tf_optimized_sequential_read": _Option(bool, False),
    "tf_prefetch_buffer_size": _Option(int, -1),
}


class Config:
    """Settings by name. Read them as attributes, and change them with `update`."""

    def __init__(self) -> None:
        values = {name: _initial(name, option) for name, option in _OPTIONS.items()}
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_updated", set())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get_or_default(name)

    def get_or_default(self, name: str) -> Any:
        """Return the value of an option."""
        values: dict[str, Any] = object.__getattribute__(self, "_values")
        if name not in values:
            raise UnknownOptionError(
                f"There is no option {name!r}. The options are {', '.join(sorted(values))}."
            )
        if name not in self._updated and (flag := _given_flag(name)) is not None:
            return flag.value
        return values[name]

    def update(self, name: str, value: Any) -> None:
        """Set an option for this process.

        Args:
            name: The name of the option.
            value: Its new value.
        """
        self.get_or_default(name)
        self._values[name] = _checked(f"option {name!r}", _OPTIONS[name], value)
        self._updated.add(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise ValueError(f"Options are set with `config.update({name!r}, {value!r})`.")

    def __dir__(self) -> list[str]:
        return [*_OPTIONS, "get_or_default", "update"]


def _initial(name: str, option: _Option) -> Any:
    variable = f"GRAIN_{name.upper()}"
    text = os.environ.get(variable)
    if text is None:
        return option.default
    value: Any = text
    if option.kind is bool:
        value = {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    elif option.kind is int:
        value = int(text) if text.lstrip("-").isdigit() else text
    return _checked(f"environment variable {variable}", option, value)


def _checked(what: str, option: _Option, value: Any) -> Any:
    if value is None and option.optional:
        return None
    if not isinstance(value, option.kind) or (option.choices and value not in option.choices):
        expected = ", ".join(map(repr, option.choices)) or f"a value of type {option.kind.__name__}"
        raise ValueError(f"The {what} takes {expected}, but got {value!r}.")
    return value


def _define_flags(flags: Any) -> None:
    """Add a flag for each option, unless there is one of that name.

    Grain defines the same flags: it may replace ours if it is imported later.
    """
    for name, option in _OPTIONS.items():
        flag = f"grain_{name}"
        if flag in flags.FLAGS:
            continue
        text = f"Sets `wholegrain.config.{name}`."
        if option.choices:
            flags.DEFINE_enum(flag, option.default, option.choices, text, allow_override=True)
        elif option.kind is bool:
            flags.DEFINE_bool(flag, option.default, text, allow_override=True)
        elif option.kind is int:
            flags.DEFINE_integer(flag, option.default, text, allow_override=True)
        else:
            flags.DEFINE_string(flag, option.default, text, allow_override=True)
        _own_flags[name] = flags.FLAGS[flag]


_own_flags: dict[str, Any] = {}
"""Flags that we defined, by option: Grain may have replaced them after parsing."""


def _given_flag(name: str) -> Any:
    """Return the flag of an option if the program has parsed it, else None."""
    flags = sys.modules.get("absl.flags")
    known = getattr(flags, "FLAGS", None)
    if known is None or not known.is_parsed():
        return None
    flag = f"grain_{name}"
    current = known[flag] if flag in known else None  # noqa: SIM401  (It has no `get`.)
    for found in (current, _own_flags.get(name)):
        if found is not None and not found.using_default_value:
            return found
    return None


config = Config()
after_import("absl.flags", _define_flags)
