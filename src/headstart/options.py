"""Options: how a setting is spelled, read, checked and explained, whichever command it belongs to.

An option is declared once, as a field of a frozen dataclass made with `option`; its flag, its
environment variable, its key in the settings file and its line in `--help` follow from the field.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from headstart.errors import ConfigError

ENVIRONMENT_PREFIX = "HEADSTART_"
CONFIG_VARIABLE = "HEADSTART_CONFIG"

SIZE_UNITS: Mapping[str, int] = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
"""1024-based: 1 KB is 1024 bytes, 1 GB is 1,073,741,824 bytes."""

LARGEST_SCALE = 1000.0
"""Beyond it a scale is a slip of the hand."""

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")


def parse_size(text: str) -> int:
    """Bytes named by `text`: "4GB", "512 MB", "1.5GB" or a plain integer of bytes.

    Units are B, KB, MB, GB and TB in any case, 1024-based. Raises ValueError.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = match.group(2).upper() if match else ""
    if match is None or (unit and unit not in SIZE_UNITS) or (not unit and "." in text):
        raise ValueError(
            "expected a size such as 4GB, 512MB or 1073741824 (B, KB, MB, GB, TB; 1 KB is 1024 B)"
        )
    return int(float(match.group(1)) * SIZE_UNITS[unit]) if unit else int(match.group(1))


def parse_text(text: str) -> str:
    """`text` itself, which must not be empty. Raises ValueError."""
    if not text.strip():
        raise ValueError("expected text, found nothing")
    return text


def parse_directory(text: str) -> str:
    """The absolute path `text` names; `~` is the user's home. Raises ValueError."""
    try:
        return str(Path(parse_text(text)).expanduser().absolute())
    except RuntimeError:
        raise ValueError("expected a path; there is no home directory of that name") from None


def parse_seconds(text: str) -> float:
    """Seconds, 0 or more: "10", "0.5". Raises ValueError."""
    if not re.fullmatch(r"\s*[0-9]{1,9}(\.[0-9]{1,9})?\s*", text):
        raise ValueError("expected seconds, 0 or more, such as 10 or 0.5")
    return float(text)


def parse_boolean(text: str) -> bool:
    """True or False, as true/false, yes/no, on/off or 1/0. Raises ValueError."""
    known = {
        "true": True,
        "1": True,
        "yes": True,
        "on": True,
        "false": False,
        "0": False,
        "no": False,
        "off": False,
    }
    try:
        return known[text.strip().lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


@dataclass(frozen=True)
class ScaledFile:
    """A file and how strongly it counts. `path` is absolute."""

    path: str
    scale: float


def parse_scaled_file(text: str) -> ScaledFile:
    """ "PATH" (scale 1) or "PATH=SCALE". The last "=" parts the two, so a path with one needs its scale.

    Raises ValueError.
    """
    path, equals, scale = text.rpartition("=")
    if not equals:
        return ScaledFile(parse_directory(text), 1.0)
    value = float(scale) if re.fullmatch(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)\s*", scale) else math.nan
    if not abs(value) <= LARGEST_SCALE:
        raise ValueError(
            f"expected a scale such as 1 or 0.5 after the last '=', at most {LARGEST_SCALE:g}; a path that "
            "has an '=' in it needs its scale too, as in a=b.gguf=1"
        )
    return ScaledFile(parse_directory(path), value)


def whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    """A parser of whole numbers from `low` to `high`, both included."""
    span = f"from {low} to {high}" if high is not None else f"of {low} or more"

    def parse(text: str) -> int:
        value = int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text) else None
        if value is None or value < low or (high is not None and value > high):
            raise ValueError(f"expected a whole number {span}")
        return value

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    """A parser that takes exactly these words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError("expected " + " or ".join(choices) + suggestion(text, choices))
        return text

    return parse


@dataclass(frozen=True)
class Option:
    """How one field of a settings class is spelled, read and explained."""

    field_name: str
    name: str
    """Flag without dashes and key in the file: "ram-cache"."""
    parse: Callable[[str], Any]
    """From text to the value; raises ValueError that names what was expected."""
    metavar: str
    help: str
    group: str
    default_text: str
    repeatable: bool
    secret: bool

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.replace("-", "_").upper()

    @property
    def boolean(self) -> bool:
        return self.parse is parse_boolean


def option(
    default: Any,
    parse: Callable[[str], Any],
    group: str,
    text: str,
    *,
    metavar: str = "",
    name: str = "",
    shown: str | None = None,
    repeatable: bool = False,
    secret: bool = False,
) -> Any:
    """A dataclass field that is an option.

    `text` explains it, `shown` is its default in words, `name` its flag where that is not the
    field's name, `repeatable` makes its value a tuple, `secret` keeps it out of errors and reprs.
    """
    spec = {
        "parse": parse,
        "group": group,
        "help": text,
        "metavar": metavar,
        "name": name,
        "default_text": shown if shown is not None else str(default),
        "repeatable": repeatable,
        "secret": secret,
    }
    return field(default=default, metadata=spec, repr=not secret)


def options_of(kind: type[Any]) -> tuple[Option, ...]:
    """The options of a settings class, in the order of its fields."""
    return tuple(_option_of(spec) for spec in fields(kind))


def _option_of(spec: Field[Any]) -> Option:
    name = spec.metadata["name"] or spec.name.replace("_", "-")
    return Option(**{**spec.metadata, "field_name": spec.name, "name": name})


def suggestion(word: str, known: Iterable[str]) -> str:
    """A closing "did you mean X?" where something known is close to `word`, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def read_file(path: Path) -> dict[str, Any]:
    """Keys and values of a TOML settings file, not checked yet. Raises ConfigError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"--config {path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"--config {path}: cannot be read: {problem}") from None
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"--config {path}: not valid TOML: {problem}") from None


def merge(
    known: Sequence[Option], flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None
) -> dict[str, Any]:
    """Checked values by field name: `flags` over `environment` over the file `config`.

    `flags`: field name to what the command line gave (text, a list for repeatable options, bool for
    switches), only what was given. HEADSTART_CONFIG names the file where `config` is None.
    Raises ConfigError for an unknown key or a value that is not usable.
    """
    if config is None and environment.get(CONFIG_VARIABLE):
        config = Path(environment[CONFIG_VARIABLE])
    merged = _from_file(known, read_file(config), config) if config is not None else {}
    merged |= _from_environment(known, environment)
    merged |= {
        one.field_name: _value(one, one.flag, flags[one.field_name])
        for one in known
        if one.field_name in flags
    }
    return merged


def _from_file(known: Sequence[Option], values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    by_name = {one.name: one for one in known}
    found = {}
    for key, raw in values.items():
        name = key.replace("_", "-")
        if name not in by_name:
            raise ConfigError(f"{path}: unknown key {key!r}{suggestion(name, by_name)}")
        found[by_name[name].field_name] = _value(by_name[name], f"{path}: {key}", raw)
    return found


def _from_environment(known: Sequence[Option], environment: Mapping[str, str]) -> dict[str, Any]:
    by_variable = {one.variable: one for one in known}
    found = {}
    for key, raw in environment.items():
        if not key.startswith(ENVIRONMENT_PREFIX) or key == CONFIG_VARIABLE or not raw:
            continue
        if key not in by_variable:
            raise ConfigError(f"unknown environment variable {key}{suggestion(key, by_variable)}")
        one = by_variable[key]
        items = [part.strip() for part in raw.split(",") if part.strip()]
        found[one.field_name] = _value(one, key, items if one.repeatable else raw)
    return found


def _value(one: Option, source: str, raw: Any) -> Any:
    """The setting that `raw`, found at `source`, stands for."""
    if not one.repeatable:
        return _single(one, source, raw)
    return tuple(_single(one, source, item) for item in (raw if isinstance(raw, list | tuple) else [raw]))


def _single(one: Option, source: str, raw: Any) -> Any:
    shown = "" if one.secret else f" {raw!r}"
    fits = isinstance(raw, str | int) or (isinstance(raw, float) and one.parse is parse_seconds)
    if not fits or (isinstance(raw, bool) and not one.boolean):
        raise ConfigError(f"{source}{shown}: expected {one.metavar or 'true or false'}")
    try:
        return one.parse(str(raw))
    except ValueError as problem:
        raise ConfigError(f"{source}{shown}: {problem}") from None
