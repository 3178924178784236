"""uvicorn, with an end in which every request gets an answer."""

from __future__ import annotations

import asyncio
import signal
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from headstart.cli.stopping import leave_at_once
from headstart.serving.scheduler import Scheduler

ANSWER_S = 5
"""How long the answers to requests that were ended may take to go out."""


class HttpServer(uvicorn.Server):
    """Serves `app`. Told to stop, it takes no new connections and lets running requests go on for
    `grace_s`; then the scheduler is stopped, which ends each of them with an error of its own. Told by
    SIGINT once more, the process ends on the spot.
    """

    def __init__(
        self, app: FastAPI, scheduler: Scheduler, *, access_log: bool = False, grace_s: float = 10.0
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=access_log,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=round(grace_s) + ANSWER_S,
            )
        )
        self._scheduler = scheduler
        self._grace_s = grace_s

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and sig == signal.SIGINT:
            leave_at_once()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        end = asyncio.create_task(self._end_requests())
        try:
            await super().shutdown(sockets)
        finally:
            end.cancel()

    async def _end_requests(self) -> None:
        await asyncio.sleep(self._grace_s)
        await asyncio.to_thread(self._scheduler.stop)
