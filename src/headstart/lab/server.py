"""A lab server on a free port of this machine: up, down, and up again over the same address."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import uvicorn

from headstart.errors import EngineError
from headstart.lab.defect import Defect
from headstart.lab.front import front
from headstart.lab.stack import Shape, Stack

MODELS = ("lab", "lab-other")
"""The models served, each with weights of its own."""
_START_S = 10.0
_LAST_ANSWERS_S = 5.0


class LabServer:
    """`defect`'s server. Use it in a `with` statement, or call `start` and `stop`.

    It is also what the harness's process control is: `restart` stops it gracefully; `kill` leaves on
    disk what was there at that moment. Both start it again at the same address, with nothing in memory.
    """

    can_restart = True
    can_kill = True
    spawned = True

    def __init__(self, defect: Defect, shape: Shape | None = None) -> None:
        self.defect = defect
        self.shape = shape or Shape()
        self.url = ""
        self._port = 0
        self._scratch: Path | None = None
        self._kills = 0
        self._stacks: tuple[Stack, ...] = ()
        self._http: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> LabServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Brings it up. Raises EngineError where it does not come up."""
        if self.defect.ssd and self.shape.directory is None and self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="headstart-lab-"))
            self.shape = replace(self.shape, directory=self._scratch / "cache")
        listener = socket.create_server(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._stacks = tuple(self._stack(index) for index in range(len(MODELS)))
        for stack in self._stacks:
            stack.start()
        config = uvicorn.Config(
            self.defect.app(front(self._stacks)),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=round(_LAST_ANSWERS_S),
            lifespan="off",
        )
        self._http = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._http.run, kwargs={"sockets": [listener]}, name="headstart-lab", daemon=True
        )
        self._thread.start()
        deadline_s = time.monotonic() + _START_S
        while not self._http.started:
            if time.monotonic() > deadline_s or not self._thread.is_alive():
                raise EngineError("the lab server did not come up")
            time.sleep(0.005)

    def _stack(self, index: int) -> Stack:
        """The model at `index`. Only the first keeps its state on disk."""
        shape = self.shape if index == 0 else replace(self.shape, directory=None)
        return Stack(self.defect, shape, name=MODELS[index], seed=index, created=1_700_000_000 + index)

    def stop(self) -> None:
        """Takes it down gracefully; what is not on disk yet is written."""
        if self._http is not None and self._thread is not None:
            self._http.should_exit = True
            self._http.force_exit = not any(stack.scheduler.snapshot().running for stack in self._stacks)
            self._thread.join(_LAST_ANSWERS_S + 5.0)
        for stack in self._stacks:
            stack.stop()
        self._stacks, self._http, self._thread = (), None, None

    def close(self) -> None:
        """Takes it down for good and removes what it left."""
        self.stop()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def restart(self) -> str | None:
        """Down gracefully and up again. None: it answers."""
        self.stop()
        if self.url:
            self.defect.stopped(self.shape.directory, killed=False)
        return self._come_up()

    def died(self) -> str | None:
        return None

    def kill(self) -> str | None:
        """Down at once and up again over what was on disk at this moment. None: it answers."""
        directory = self.shape.directory
        if directory is not None:
            self._kills += 1
            left = directory.with_name(f"{directory.name}-{self._kills}")
            shutil.copytree(directory, left, copy_function=_copied, dirs_exist_ok=True)
            self.shape = replace(self.shape, directory=left)
        self.stop()
        self.defect.stopped(self.shape.directory, killed=True)
        return self._come_up()

    def settle(self) -> None:
        """Waits until everything that is on its way to the disk is there. Raises EngineError where that
        takes too long."""
        deadline_s = time.monotonic() + _START_S
        while any(stack.waiting_writes for stack in self._stacks):
            if time.monotonic() > deadline_s:
                raise EngineError("the lab server does not get its cache written")
            time.sleep(0.01)

    def fresh(self) -> str | None:
        """What `restart` does, by the name it has for a server that answers are compared with."""
        return self.restart()

    def end(self) -> str | None:
        """What `stop` does. None: it is down."""
        self.stop()
        return None

    def _come_up(self) -> str | None:
        try:
            self.start()
        except (OSError, EngineError) as error:
            return str(error)
        return None


def _copied(source: str, target: str) -> str:
    """A file as it is now; one that is renamed or removed meanwhile is as good as never written."""
    try:
        return str(shutil.copy2(source, target))
    except FileNotFoundError:
        return target
