"""How Sphinx builds these pages. Nothing is fetched: the build works offline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from flask_idempotent import __version__

project = "flask-idempotency"
author = "The flask-idempotency authors"
copyright = f"{author}; MIT licence"
release = version = __version__

extensions = ["sphinx.ext.autodoc"]
exclude_patterns = ["_build", "_*.rst"]
nitpicky = True
nitpick_ignore_regex = [
    # No inventories of other projects are fetched, so what is theirs is named and not linked.
    (r"py:.*", r"(blinker|collections|datetime|flask|logging|markupsafe|typing|werkzeug)\..*"),
    (r"py:.*", r"Any|Callable|Flask|Iterable|Iterator|Logger|NamedSignal|Self|t\.Any|timedelta"),
    (r"py:.*", r"flask_idempotent\.decorator\.F"),  # a type variable
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
highlight_language = "python"

html_theme = "furo"
html_title = "flask-idempotency"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sphinx = False
html_domain_indices = False
html_use_index = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def setup(app: Any) -> None:
    """Let the changelog page be CHANGELOG.md, which is written in Markdown for those who read it in the repository."""
    app.connect("source-read", _read_changelog)


def _read_changelog(app: Any, docname: str, source: list[str]) -> None:
    if docname != "changelog":
        return
    file = Path(app.srcdir).parent / "CHANGELOG.md"
    app.env.note_dependency(str(file))
    source[0] = _from_markdown(file.read_text(encoding="utf-8"))


def _from_markdown(text: str) -> str:
    """Headings and ``code``; a list is written the same way in both."""
    text = re.sub(r"(?<!`)`([^`\n]+)`(?!`)", r"``\1``", text)
    return re.sub(r"^(#{1,3}) (.+)$", lambda found: _heading(len(found[1]), found[2]), text, flags=re.MULTILINE)


def _heading(level: int, title: str) -> str:
    return f"{title}\n{' =-~'[level] * len(title)}"
