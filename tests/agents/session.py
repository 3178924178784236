"""Two prompts to a coding agent in a small repository, the second resuming the session of the first."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.lab.scripted import Rule
from tests.agents.clients import Call, Client

FIRST = "Read app.py and main.py, then have the greeting be Salve."
SECOND = "What does the greeting say now?"
FILES = {
    "app.py": 'def greet(name):\n    return "Hello, " + name\n',
    "main.py": 'import app\n\nprint(app.greet("you"))\n',
}
THOUGHT = "<think>\nBoth files are needed.\n</think>\n\n"
READ = f"{THOUGHT}I look at both.  \n"
DONE = "It says Salve now.\n"
LOST = "That is not what was expected."
ASIDE = "Nothing to note."
RUN_LIMIT_S = 180


@dataclass(frozen=True)
class Place:
    """The folders of one session. `programs`: where the clients are installed."""

    home: Path
    repository: Path
    programs: Path


def prepared(folder: Path, programs: Path) -> Place:
    """An empty home and a repository with one commit below `folder`. Raises AssertionError where the clients
    are not installed."""
    assert programs.is_dir(), (
        f"there are no coding agents in {programs}: `make agents` installs and runs them"
    )
    place = Place(folder / "home", folder / "repo", programs)
    place.home.mkdir()
    place.repository.mkdir()
    for name, text in FILES.items():
        (place.repository / name).write_text(text)
    author = ("-c", "user.name=A Person", "-c", "user.email=person@example.com")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*author, "commit", "-q", "-m", "Two files")):
        subprocess.run(["git", *words], cwd=place.repository, env=environment(place, {}, ""), check=True)
    return place


def rules(client: Client, place: Place) -> list[Rule]:
    """The replies of a session with `client`: two reads at once, an edit, an answer; a read, an answer."""
    return [
        Rule(FIRST, READ + written(_in(place, client.reads))),
        Rule("print(app.greet(", written(_in(place, [client.edits]))),
        Rule(client.edited, DONE),
        Rule(SECOND, written(_in(place, client.reads[:1]))),
        Rule('return "Salve, ', DONE),
        *(Rule(words, ASIDE) for words in client.aside),
        Rule("<|im_start|>tool\n", LOST),
    ]


def written(calls: Sequence[Call]) -> str:
    """Calls in a model's own form, spaced and escaped as no serializer does."""
    return "\n".join(
        '<tool_call>\n{ "name" : '
        + json.dumps(name)
        + ',  "arguments":'
        + _odd(arguments)
        + "}\n</tool_call>"
        for name, arguments in calls
    )


def _odd(arguments: object) -> str:
    return json.dumps(arguments, separators=(" ,  ", " :  ")).replace("app.py", "\\u0061pp.py")


def _in(place: Place, calls: Sequence[Call]) -> list[Call]:
    return [
        (name, json.loads(json.dumps(arguments).replace("@REPO@", str(place.repository))))
        for name, arguments in calls
    ]


def run(client: Client, command: Sequence[str], prompt: str, place: Place, url: str) -> str:
    """What the client prints. Raises AssertionError with all it said where it fails."""
    for name, text in client.files.items():
        path = place.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_filled(text, place, url))
    done = subprocess.run(
        [*command, prompt],
        cwd=place.repository,
        env=environment(place, dict(client.environment), url),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{client.name}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(place: Place, settings: dict[str, str], url: str) -> dict[str, str]:
    """Nothing of the caller's but where programs are."""
    own = {name: _filled(text, place, url) for name, text in settings.items()}
    path = os.pathsep.join([str(place.programs), os.environ["PATH"]])
    return {"PATH": path, "HOME": str(place.home), "LANG": "C.UTF-8", "TERM": "dumb", **own}


def _filled(text: str, place: Place, url: str) -> str:
    for mark, value in (("@URL@", url), ("@HOME@", str(place.home)), ("@REPO@", str(place.repository))):
        text = text.replace(mark, value)
    return text
