"""What an exception from a user's function says about where it happened."""

_MARK = "wholegrain: "


def add_stage_note(error: BaseException, text: str) -> None:
    """Add a line to `error`, once."""
    note = _MARK + text
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def has_stage_note(error: BaseException) -> bool:
    """Say whether a stage has already said where `error` happened."""
    return any(note.startswith(_MARK) for note in getattr(error, "__notes__", ()))
