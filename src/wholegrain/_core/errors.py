"""Notes on exceptions from user functions: where the exception happened."""

_MARK = "wholegrain: "


def add_stage_note(error: BaseException, text: str) -> None:
    """Add a note to `error`, unless it already has it."""
    note = _MARK + text
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def stage_notes(error: BaseException) -> list[str]:
    """Return the notes of stages about where `error` happened."""
    notes: list[str] = getattr(error, "__notes__", [])
    return [note.removeprefix(_MARK) for note in notes if note.startswith(_MARK)]


def has_stage_note(error: BaseException) -> bool:
    """Return whether a stage has already noted where `error` happened."""
    return any(note.startswith(_MARK) for note in getattr(error, "__notes__", ()))


_NO_PLACE = "_wholegrain_takes_no_place"


def take_no_place(error: BaseException) -> None:
    """Mark `error` as one that did not consume an element.

    For example, a worker died or could not be started: the next call returns the same element.
    """
    vars(error)[_NO_PLACE] = True


class taking_no_place:
    """Mark the errors of a `with` block as ones that did not consume an element."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            take_no_place(error)


def takes_place(error: BaseException) -> bool:
    """Return whether `error` consumed an element, so that the next call returns the next one."""
    return _NO_PLACE not in vars(error)
