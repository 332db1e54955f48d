"""The page: one HTML file with its style, its programs and its data, that may load nothing and runs nothing else."""

import hashlib
import html
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from importlib import resources
from typing import Any

from grpo_kit.terminal import one_line

MARK = '<meta name="generator" content="grpo-kit report">'
"""By which a page is known as ours, near its beginning."""
PROGRAMS = ("elements.js", "charts.js", "signals.js", "filters.js", "tokens.js", "start.js")


def page(title: str, data: Mapping[str, Any], plotly: str) -> str:
    """The whole document. Names and texts are in `data` alone, which is no program, and the title."""
    program = "\n".join(["(() => {", '"use strict";', *map(_packaged, PROGRAMS), "})();"])
    parts = {
        "MARK": MARK,
        "TITLE": html.escape(one_line(title)),
        "POLICY": policy(plotly, program),
        "STYLE": _packaged("page.css"),
        "DATA": as_data(data),
        "PLOTLY": plotly,
        "PROGRAM": program,
    }
    for name in ("PLOTLY", "PROGRAM"):
        assert not re.search(r"</script|<!--|\r", parts[name], re.IGNORECASE), f"{name} would not end where it ends"
    return re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], _packaged("page.html"))


def policy(*programs: str) -> str:
    """What the browser lets the page do: run these very programs, style itself, show pictures that it made itself."""
    hashes = " ".join(f"'sha256-{b64encode(hashlib.sha256(own.encode()).digest()).decode()}'" for own in programs)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def as_data(value: Any) -> str:
    """JSON that no HTML parser takes for anything else: ASCII without <, > and &."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _packaged(name: str) -> str:
    return (resources.files("grpo_kit.report") / name).read_text(encoding="utf-8")
