"""The reports of a results directory, as text by file name, and results read back.

results.json   everything, in the form of schema.json
junit.xml      for continuous integration
report.html    for a person
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Final

from headstart.accept.report import junit, page
from headstart.accept.report.form import from_json
from headstart.accept.report.results import Results
from headstart.errors import ConfigError

RESULTS: Final = "results.json"
JUNIT: Final = "junit.xml"
PAGE: Final = "report.html"
_MOST_BYTES: Final = 512 << 20


def reports(results: Results) -> dict[str, str]:
    """The text of each file by its name."""
    return {RESULTS: as_json(results), JUNIT: junit.render(results), PAGE: page.render(results)}


def as_json(results: Results) -> str:
    """The text of results.json. JSON has no NaN and no infinity: such a figure becomes null; half a
    surrogate pair, which a server's JSON can hold and UTF-8 cannot, is written as an escape."""
    text = json.dumps(_finite(results.to_json()), indent=1, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def read(path: Path) -> Results:
    """The results in `path`: a results directory, or the results.json of one.

    Raises ConfigError where there are none, they are damaged, or another version wrote them.
    """
    file = path / RESULTS if path.is_dir() else path
    try:
        size = file.stat().st_size
        if size > _MOST_BYTES:
            raise ConfigError(f"{file} has {size:,} bytes; a run's results never have that many")
        text = file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"no results here: {file} does not exist") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is damaged: not UTF-8 at byte {error.start:,}") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
    return _parsed(text, file)


def _parsed(text: str, file: Path) -> Results:
    try:
        data = json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{file} is damaged: not JSON at line {error.lineno}, column {error.colno} ({error.msg})"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is damaged: {error}") from None
    if not isinstance(data, dict) or "format" not in data:
        raise ConfigError(f"{file} does not hold results of headstart accept")
    try:
        return from_json(data)
    except ValueError as error:
        raise ConfigError(f"{file} cannot be used: {error}") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
