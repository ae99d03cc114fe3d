"""What a command says when it was asked for something that cannot be done."""


class BadInput(Exception):
    """The command cannot do what was asked; the message is the one line that is printed."""


def one_line(error: BaseException) -> str:
    """Return what an exception says, in one line."""
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"{error.strerror}: {str(error.filename)!r}."
    text = " ".join(str(error).split())
    if isinstance(error, BadInput):
        return text
    return f"{text or 'no message'} ({type(error).__name__})"
