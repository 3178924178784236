"""The page docs/reference/causes.md, made of the causes' own words.

python -m headstart.blame.causes.reference > docs/reference/causes.md
"""

from __future__ import annotations

from collections.abc import Iterator

from headstart.blame.causes import BODY_CAUSES, CAUSES, SERVER_CAUSES, Cause, retokenised, template_suffix
from headstart.blame.finding import Fix

HEAD = """\
# Causes

What `headstart watch` and `headstart explain` can find, one entry a cause, made of the files in
`src/headstart/blame/causes`. How they are told apart: [why was it slow](../guides/why-was-it-slow.md).
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(line for cause in CAUSES for line in _entry(cause))])


def _entry(cause: Cause) -> Iterator[str]:
    yield f"## {cause.CODE}\n"
    yield f"{cause.PLAIN}\n"
    yield f"*Seen in {_seen_in(cause)}.*\n"
    for fix in dict.fromkeys([cause.FIX, *(one for one in vars(cause).values() if isinstance(one, Fix))]):
        parts = [fix.text]
        if fix.command:
            parts.append(f"`{fix.command}`")
        if fix.repair:
            parts.append(f"Or `headstart watch --fix {fix.repair}`, which does it on the way.")
        yield f"- {' '.join(parts)}"
    yield ""


def _seen_in(cause: Cause) -> str:
    if cause is template_suffix:
        return "rendered prompts (`--model`)"
    if cause is retokenised:
        return "tokens (`--model`)"
    places = [
        name
        for name, causes in (("the requests", BODY_CAUSES), ("the server's counts", SERVER_CAUSES))
        if cause in causes
    ]
    return " or ".join(places)


if __name__ == "__main__":
    print(page(), end="")
