"""Run in the folder of mutmut: of each mutant of a file ``[status, what was, what it becomes]``, as JSON."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any


def change(diff: str) -> tuple[str, str]:
    """The lines that differ, each side in one."""
    lines = diff.splitlines()[3:]
    was, becomes = (" ".join(line[1:] for line in lines if line.startswith(sign)) for sign in "-+")
    return re.sub(r"\s+", " ", was).strip(), re.sub(r"\s+", " ", becomes).strip()


def described(file: str) -> list[Any]:
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.format_utils import orig_function_and_class_names_from_key

    meta = Path("mutants", f"{file}.meta")
    codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"] if meta.exists() else {}
    found = []
    for name, code in codes.items():
        function, owner = orig_function_and_class_names_from_key(name)
        was, becomes = change(get_diff_for_mutant(name, path=file))
        found.append(
            [status_by_exit_code[code], f"{owner}.{function}: {was}" if owner else f"{function}: {was}", becomes]
        )
    return found


if __name__ == "__main__":
    print(json.dumps(described(sys.argv[1])))
