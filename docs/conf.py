"""How Sphinx builds these pages. Nothing is fetched: the build works offline."""

from __future__ import annotations

from flask_idempotent import __version__

project = "flask-idempotency"
author = "The flask-idempotency authors"
copyright = f"{author}; MIT licence"
release = version = __version__

extensions = ["sphinx.ext.autodoc", "myst_parser"]
myst_enable_extensions = ["colon_fence"]
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
