"""Let the documentation show the section `Example:` of a docstring as code; its parser only knows `Examples:`."""

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Rename the section before the docstring is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every object read from the source."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
