"""Black-box acceptance of a server's prefix cache: HTTP and files only.

exchange   what is asked and what came back, as data
endpoint   sends it, robustly, and times it; wires/ know the formats
servers/   what each server tells about itself: facts, counters, token ids
fixtures   the texts that are sent
judge      pure decisions: same answer or not, warm or cold, how far back it restores
session    all of that in one place, for a gate
gates/     one question each, answered with verdicts
runner     runs the gates; artifacts and report/ keep what came out
"""
