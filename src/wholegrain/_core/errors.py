"""What an exception from a user's function says about where it happened."""

_MARK = "wholegrain: "


def add_stage_note(error: BaseException, text: str) -> None:
    """Add a line to `error`, once."""
    note = _MARK + text
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def stage_notes(error: BaseException) -> list[str]:
    """Return what stages have said about where `error` happened."""
    notes: list[str] = getattr(error, "__notes__", [])
    return [note.removeprefix(_MARK) for note in notes if note.startswith(_MARK)]


def has_stage_note(error: BaseException) -> bool:
    """Say whether a stage has already said where `error` happened."""
    return any(note.startswith(_MARK) for note in getattr(error, "__notes__", ()))


_NO_PLACE = "_wholegrain_takes_no_place"


def take_no_place(error: BaseException) -> None:
    """Note that `error` does not stand in an element's place, because none was taken.

    A worker that died or could not be started, say: who asks again gets the same element.
    """
    vars(error)[_NO_PLACE] = True


def takes_place(error: BaseException) -> bool:
    """Say whether `error` came in the place of an element, so that the next one comes next."""
    return _NO_PLACE not in vars(error)
