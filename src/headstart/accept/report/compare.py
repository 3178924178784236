"""`headstart accept compare A B`: two runs read, set side by side and printed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TextIO

from headstart.accept.report.files import read
from headstart.accept.report.side_by_side import Change, compare
from headstart.accept.report.side_by_side_table import compared
from headstart.accept.report.table import style_for


def run(a: Path, b: Path, *, anyway: bool = False, as_json: bool = False, out: TextIO | None = None) -> int:
    """Prints the comparison to `out` (stdout). Exit status 1 where a check is worse in B, else 0.

    `a`, `b`: results directories, or results.json files. Raises ConfigError where one cannot be read, and
    where the two cannot be compared unless `anyway`.
    """
    stream = sys.stdout if out is None else out
    comparison = compare(read(a), read(b), anyway=anyway)
    if as_json:
        print(json.dumps(comparison.to_json(), indent=1), file=stream)
    else:
        print(compared(comparison, style_for(stream, os.environ)), end="", file=stream)
    return 1 if comparison.changed(Change.WORSE) else 0
