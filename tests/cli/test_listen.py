"""The listening socket: a port in use and a strange address are told at once."""

from __future__ import annotations

import pytest

from headstart.cli.listen import open_socket, url_of
from headstart.errors import ConfigError


def test_a_free_port_is_found_and_a_taken_one_is_named() -> None:
    with open_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        with pytest.raises(ConfigError, match=f"--port {port}: another program listens on 127.0.0.1"):
            open_socket("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen there|not an address"):
        open_socket("192.0.2.1", 0)
    with pytest.raises(ConfigError, match="not an address of this machine"):
        open_socket("no.such.host.invalid", 0)


def test_url_of_an_address_that_means_all() -> None:
    with open_socket("0.0.0.0", 0) as listener:
        assert url_of(listener).startswith("http://127.0.0.1:")
