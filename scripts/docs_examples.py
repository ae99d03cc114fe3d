"""Examples in docstrings shown as code: an extension of griffe, which reads the docstrings."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Has `Example:` mean what `Examples:` means."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Look at one object's docstring."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE
            )
