"""What a request for embeddings is told, in every dialect."""

from __future__ import annotations

__all__ = ["NO_EMBEDDINGS"]

NO_EMBEDDINGS = (
    "this server makes no embeddings: headstart serves generation only. Run an embedding model beside it, "
    "for example with llama-server --embeddings or ollama, and send requests for embeddings there"
)
