"""Tokens of a reply turned into text as they come: characters completed, stop strings cut.

The text sent does not depend on how the reply is split into tokens. Bytes that cannot be UTF-8
become U+FFFD, as the Unicode standard recommends (chapter 3, "U+FFFD substitution of maximal
subparts"), as soon as that is certain. Of several stop strings the one that is complete first
ends the reply; where two end at the same character, the longer.
"""

from __future__ import annotations

import codecs

from headstart.engines.base import Vocabulary


class TextStream:
    """The text of one reply. `stopped` is the stop string that ended it, None while there is none. `shown`:
    control tokens that are spelled in it all the same.

    Holds back at most an incomplete character and the longest end of the text that could begin a
    stop string; the work for a token grows with the text it adds and that end, not with the reply.
    """

    def __init__(
        self, vocabulary: Vocabulary, stops: tuple[str, ...], shown: frozenset[int] = frozenset()
    ) -> None:
        self.stopped: str | None = None
        self._pieces = vocabulary.pieces
        self._hidden = (vocabulary.control - shown) | vocabulary.end_of_generation
        self._stops = tuple(stop for stop in stops if stop)
        self._firsts = frozenset(stop[0] for stop in self._stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, token: int) -> str:
        """The text that `token` makes certain; "" after a stop string was found."""
        if self.stopped is not None or token in self._hidden:
            return ""
        return self._release(self._decoder.decode(self._pieces[token]))

    def finish(self) -> str:
        """What was held back: the reply has ended. "" after a stop string was found."""
        if self.stopped is not None:
            return ""
        text = self._release(self._decoder.decode(b"", final=True))
        if self.stopped is None:
            text += self._held
        self._held = ""
        return text

    def _release(self, text: str) -> str:
        if not self._stops:
            return text
        text = self._held + text
        found = self._first_stop(text)
        if found is not None:
            start, self.stopped = found
            self._held = ""
            return text[:start]
        keep = self._possible_start(text)
        self._held = text[keep:]
        return text[:keep]

    def _first_stop(self, text: str) -> tuple[int, str] | None:
        """Where the stop string that is complete first begins, and which it is."""
        ends = []
        for stop in self._stops:
            start = text.find(stop)
            if start >= 0:
                ends.append((start + len(stop), start, stop))
        if not ends:
            return None
        _, start, stop = min(ends)
        return start, stop

    def _possible_start(self, text: str) -> int:
        """The earliest position from which the rest of `text` may be the beginning of a stop string."""
        for position, character in enumerate(text):
            if character in self._firsts:
                rest = text[position:]
                if any(stop.startswith(rest) for stop in self._stops):
                    return position
        return len(text)
