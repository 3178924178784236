"""What `headstart watch` adds to a request, and whether it holds many streams.

    python bench/watch_overhead.py       a minute

A server that answers from memory is asked directly and through the proxy by turns, so that both see the same
machine; the proxy judges and records. Once more with 2 kB while another agent sends 800 kB again and again,
so that there is always something to judge. Then 200 streams of 40 events, 50 ms apart, at once: directly, and
through it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from machine import write_results

EVENTS = 40
PAUSE_S = 0.05
CHAT = "/v1/chat/completions"


def event(number: int) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"word %d "}}]}\n\n' % number


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers requests on one connection: a stream with pauses where asked for one, else at once."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            if b"x-slow" in head.lower():
                await stream(writer)
            else:
                body = b'{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}'
                kind = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                writer.write(kind + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        writer.close()


async def stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for number in range(EVENTS):
        piece = event(number)
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await asyncio.sleep(PAUSE_S)
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def serve_in_a_process() -> tuple[subprocess.Popen[bytes], int]:
    process = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


async def serve() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 20, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def watch(port: int, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """`headstart watch` with a recording, in front of `port`."""
    command = [sys.executable, "-m", "headstart", "watch", "--upstream", f"http://127.0.0.1:{port}"]
    command += ["--listen", "127.0.0.1:0", "--record", str(folder / "recording.jsonl"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(b"ready"):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, int(line.split()[1].rsplit(b":", 1)[1])
    raise SystemExit("headstart watch did not start")


def request(nbytes: int, *headers: str) -> bytes:
    filler = "the quick brown fox " * (nbytes // 20)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": filler}]}).encode()
    lines = [f"POST {CHAT} HTTP/1.1", "Host: 127.0.0.1", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def one_after_the_other(ports: tuple[int, int], sent: bytes, times: int) -> dict[str, float]:
    """Milliseconds from the first byte sent to the reply: medians, and what the proxy adds."""
    lines = [await asyncio.open_connection("127.0.0.1", port) for port in ports]
    taken: list[list[float]] = [[], []]
    for turn in range(2 * times):
        which = turn % 2
        reader, writer = lines[which]
        began = time.perf_counter()
        writer.write(sent)
        await reader.readuntil(b'"stop"}]}')
        taken[which].append((time.perf_counter() - began) * 1e3)
        # An agent does not send its next request at once; what judges and records has its time meanwhile.
        await asyncio.sleep(0.05 if len(sent) < 500_000 else 0.2)
    for _, writer in lines:
        writer.close()
    direct, through = (sorted(one) for one in taken)
    return {
        "direct_ms": statistics.median(direct),
        "through_ms": statistics.median(through),
        "added_ms": statistics.median(through) - statistics.median(direct),
        "added_p95_ms": through[int(0.95 * times)] - direct[int(0.95 * times)],
    }


async def beside_another(ports: tuple[int, int], times: int) -> dict[str, float]:
    """Small requests while another agent sends a large one through the proxy ten times a second."""
    large = request(800_000)

    async def another() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", ports[1])
        try:
            while True:
                writer.write(large)
                await reader.readuntil(b'"stop"}]}')
                await asyncio.sleep(0.1)
        finally:
            writer.close()

    other = asyncio.create_task(another())
    try:
        return await one_after_the_other(ports, request(2_000), times)
    finally:
        other.cancel()


async def many_streams(port: int, count: int) -> dict[str, Any]:
    """`count` streams at once: whether each came whole, and how late events were at worst."""
    sent = request(20_000, "X-Slow: 1", "Connection: close")
    gaps: list[float] = []

    async def one() -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await reader.readuntil(b"\r\n\r\n")
        last, body = time.perf_counter(), b""
        while not body.endswith(b"0\r\n\r\n"):
            piece = await reader.read(1 << 16)
            if not piece:
                return False
            body += piece
            now = time.perf_counter()
            gaps.append((now - last) * 1e3)
            last = now
        writer.close()
        return all(event(number) in body for number in range(EVENTS))

    whole = await asyncio.gather(*(one() for _ in range(count)))
    gaps.sort()
    return {
        "streams": count,
        "whole": sum(whole),
        "gap_median_ms": statistics.median(gaps),
        "gap_p99_ms": gaps[int(0.99 * len(gaps))],
    }


def measure(times: int, streams: int) -> dict[str, Any]:
    server, direct = serve_in_a_process()
    with tempfile.TemporaryDirectory() as folder:
        proxy, through = watch(direct, Path(folder))
        try:
            found: dict[str, Any] = {}
            for name, nbytes in (("2_kB", 2_000), ("100_kB", 100_000), ("800_kB", 800_000)):
                asked = one_after_the_other((direct, through), request(nbytes), times)
                found[f"request_{name}"] = asyncio.run(asked)
            found["request_2_kB_beside_800_kB"] = asyncio.run(beside_another((direct, through), times))
            found["streams_direct"] = asyncio.run(many_streams(direct, streams))
            found["streams_through"] = asyncio.run(many_streams(through, streams))
        finally:
            for process in (proxy, server):
                process.terminate()
                process.wait(30)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--times", type=int, default=200, help="requests of each kind each way (default: 200)"
    )
    parser.add_argument("--streams", type=int, default=200, help="streams at once (default: 200)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: bench/results)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.serve:
        asyncio.run(serve())
        return
    found = measure(flags.times, flags.streams)
    for name, numbers in found.items():
        told = [
            f"{key} {one:.2f}" if isinstance(one, float) else f"{key} {one}" for key, one in numbers.items()
        ]
        print(f"{name:<28} {'  '.join(told)}")
    write_results("watch_overhead", found, *([flags.out] if flags.out else []))


if __name__ == "__main__":
    main()
