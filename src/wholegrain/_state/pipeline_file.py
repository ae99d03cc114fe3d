"""The description of a pipeline in its checkpoint, and the comparison when it is restored."""

import json
import operator
import warnings
from typing import Any

from wholegrain._core.config import config
from wholegrain._core.interruption import is_interruption
from wholegrain._core.log import logger
from wholegrain._state.changes import compare
from wholegrain._state.fingerprint import fingerprint


def description(iterator: Any) -> str | None:
    """Return the text that describes an iterator's pipeline; None if it is not known."""
    if getattr(iterator, "opened_from", None) is None:
        return None
    try:
        return json.dumps(fingerprint(iterator), indent=2)
    except Exception as error:
        if is_interruption(error):
            raise
        # A user's `len` or `repr` failed, which is no reason to lose a checkpoint.
        logger().warning("The checkpoint has no description of its pipeline: %r", error)
        return None


def check_pipeline(iterator: Any, directory: Any, file: Any) -> None:
    """Compare an iterator's pipeline with the one that wrote the checkpoint in `directory`.

    Args:
        iterator: The iterator to restore.
        directory: The checkpoint.
        file: The description in it; None if there is none because Grain wrote the checkpoint.

    Raises:
        ValueError: If the saved position has no meaning in the iterator's pipeline.
    """
    if file is None or getattr(iterator, "opened_from", None) is None or not config.check_pipeline:
        return
    own = _own_description(iterator)
    if own is None:
        return
    try:
        saved = json.loads(file.read_text())
        is_later = operator.index(saved["version"]) > own["version"]
        changes = None if is_later else compare(saved, own)
    except Exception as error:
        if is_interruption(error):
            raise
        raise ValueError(
            f"File {file} is damaged: it is not the description of a pipeline ({error!r}). Restore"
            " another checkpoint; or delete the file, if the pipeline is the same."
        ) from error
    if changes is None:
        _warn_unchecked(f"{file} cannot be read, because a later release wrote it")
        return
    if changes.breaking:
        raise ValueError(
            f"The checkpoint in {directory} was written by another pipeline: its position has no"
            f" meaning in this one.{_listed(changes.breaking)}\nRestore it with the pipeline that"
            f" wrote it, which {file} describes. To go to that position all the same, call"
            " `wholegrain.config.update('check_pipeline', False)` first."
        )
    if changes.harmless:
        warnings.warn(
            f"The pipeline differs from the one that wrote the checkpoint in {directory}. The"
            f" position keeps its meaning.{_listed(changes.harmless)}",
            stacklevel=3,
        )


def _own_description(iterator: Any) -> Any:
    try:
        return fingerprint(iterator)
    except Exception as error:  # A user's `len` or `repr` failed.
        if is_interruption(error):
            raise
        _warn_unchecked(f"it cannot be described ({error!r})")
        return None


def _warn_unchecked(reason: str) -> None:
    warnings.warn(f"The checkpoint was not checked against this pipeline: {reason}.", stacklevel=4)


def _listed(changes: list[str]) -> str:
    return "".join(f"\n  - {change}" for change in changes)
