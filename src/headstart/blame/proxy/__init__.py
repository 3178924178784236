"""A reverse proxy that changes nothing: what goes in comes out, byte for byte, as soon as it is there.

Every connection of a client has one of its own to the server behind, so a close on one side is a close on
the other. What passes is copied for a listener; nobody waits for the listener.
"""

from __future__ import annotations

import asyncio
import socket

from headstart.blame.proxy.connection import Connection
from headstart.blame.proxy.passing import Passing
from headstart.blame.proxy.service import Service
from headstart.blame.proxy.side import Side

__all__ = ["Passing", "Proxy", "Service"]


class Proxy:
    """Passes requests on as `service` says."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, listener: socket.socket) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: Side(replies=False, opened=self._open), sock=listener)

    async def stop(self) -> None:
        """Ends what is running; each of these exchanges is told of as far as it came."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _open(self, client: Side) -> None:
        task = asyncio.get_running_loop().create_task(self._run(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, client: Side) -> None:
        connection = Connection(self._service, client)
        try:
            await connection.run()
        except asyncio.CancelledError:
            client.drop()
        finally:
            await connection.close()
