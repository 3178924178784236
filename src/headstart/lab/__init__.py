"""Servers for tests: on a toy engine with one planted defect each, which `headstart accept` must catch, and
on any engine with replies that are given.

engine     the toy engine with a model that answers from its own state, read by sleeping
stack      one model: engine, cache, scheduler, metrics and API, the real ones
front      several models behind one address
server     all of it behind uvicorn, up, down, killed and up again at the same address
defect     what a defect is and where it may bend a server; the sound servers
defects/   the planted ones: plans, state, losing, counting, replies
rewriting  ASGI that changes what is asked and answered, for defects on the wire
selftest   the gates of `headstart accept` against all of them
scripted   a program of its own: `headstart serve` with given replies, for agents on small models
"""
