"""Who broke the prefix: the client, the chat template, the tokenizer or the server.

Speaks HTTP and files only; knows nothing of this package's server, cache or engines.
"""
