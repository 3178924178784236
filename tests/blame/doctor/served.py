"""A fake server on a free loopback port: what it answers is given, what it was asked is kept."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LLAMA = {
    "/props": {
        "default_generation_settings": {"n_ctx": 16384, "params": {"speculative.types": "none"}},
        "total_slots": 1,
        "build_info": "b7000-abc",
        "model_path": "/models/missing.gguf",
    },
    "/v1/models": {
        "data": [{"id": "small", "owned_by": "llamacpp", "meta": {"n_ctx_train": 40960, "size": 5 << 30}}]
    },
}
OLLAMA = {
    "/api/version": {"version": "0.20.1"},
    "/api/ps": {"models": [{"name": "q:4b", "context_length": 4096, "size": 3 << 30, "size_vram": 3 << 30}]},
    "/api/show": {
        "model_info": {"q.context_length": 262144, "q.ssm.inner_size": 8, "q.attention.sliding_window": 512}
    },
}
LMSTUDIO = {
    "/api/v0/models": {
        "data": [
            {"id": "a", "state": "not-loaded", "compatibility_type": "gguf"},
            {
                "id": "b",
                "state": "loaded",
                "compatibility_type": "mlx",
                "loaded_context_length": 8192,
                "max_context_length": 131072,
            },
        ]
    }
}
VLLM = {
    "/v1/models": {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8192}]},
    "/version": {"version": "0.30"},
    "/metrics": "# HELP x\n"
    'vllm:cache_config_info{block_size="16",enable_prefix_caching="True",mamba_block_size="8320"} 1.0\n'
    "vllm:spec_decode_num_drafts_total 3.0\n",
}
OMLX = {
    "/v1/models": {"data": [{"id": "m", "owned_by": "omlx", "max_model_len": 32768}]},
    "/api/status": {"version": "0.6.4"},
}
SGLANG = {
    "/v1/models": {"data": [{"id": "m", "owned_by": "sglang", "max_model_len": 65536}]},
    "/get_server_info": {
        "version": "0.6",
        "page_size": 1,
        "max_running_requests": 16,
        "disable_radix_cache": True,
    },
}
HEADSTART = {
    "/v1/models": {"data": [{"id": "m", "headstart": {"context_tokens": 8192, "checkpoint_bytes": 0}}]},
    "/openapi.json": {"info": {"version": "0.1.0"}},
}
MLX_LM = {"/health": {"status": "ok"}}


@dataclass
class Served:
    port: int
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(replies: Mapping[str, Any], *, slow_s: float = 0.0, raw: bytes | None = None) -> Iterator[Served]:
    """`raw`: bytes sent in place of any reply. `slow_s`: waited before each."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            time.sleep(slow_s)
            if raw is not None:
                self.wfile.write(raw)
                return
            found = replies.get(self.path)
            body = found if isinstance(found, str) else json.dumps(found)
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Served(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
