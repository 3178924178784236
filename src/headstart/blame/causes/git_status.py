"""A snapshot of the repository in the prompt."""

from __future__ import annotations

import re

from headstart.blame.causes.context import Context, Sides, found, short, sides
from headstart.blame.finding import Change, Finding, Fix

CODE = "GIT_STATUS"
PLAIN = (
    "The client writes branch, changed files and last commits into the prompt. As soon as a file or a commit "
    "changes, a new session or a resumed one has another text there, and everything behind it is read again."
)
FIX = Fix(
    "Leave the repository's state out of the prompt, or freeze it for the session; the model can ask git."
)
CLAUDE = Fix(
    "Leave the repository's state out of Claude Code's prompt: by this variable, or by "
    "`includeGitInstructions: false` in its settings. The model can ask git.",
    "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS=1",
)
_HEADING = re.compile(
    r"git ?status|current branch|main branch|recent commits|^\s*(?:git: )?status:",
    re.IGNORECASE | re.MULTILINE,
)
_LINE = re.compile(
    r"^\s*(?:git: )?(?:[MADRCUT?!]{1,2}\s+\S|\(clean\)|- ?[0-9a-f]{7,}\b|[0-9a-f]{7,40}\s+\S"
    r"|nothing to commit|(?:current |main )?branch|status:|working tree|recent commits"
    r"|(?:modified|deleted|new file):)",
    re.IGNORECASE,
)
_REACH = 3000


def detect(change: Change | None, context: Context) -> Finding | None:
    at = sides(change) if change else None
    if change is None or at is None or not _in_snapshot(at):
        return None
    before, after = at.lines
    if not (_LINE.search(before) or _LINE.search(after)):
        return None
    said = f"the repository's state changed: {short(before) or 'nothing'} -> {short(after) or 'nothing'}"
    return found(CODE, change, context, said, CLAUDE if context.from_claude else FIX)


def _in_snapshot(at: Sides) -> bool:
    start = max(0, at.char - _REACH)
    return bool(_HEADING.search(at.before[start : at.char]) or _HEADING.search(at.lines[0]))
