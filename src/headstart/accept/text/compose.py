"""Writes prose.txt: plain English of the harness's own making, the same on every machine.

Run as a module to write the file again; a test checks that it is what this makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

LENGTH = 88_000
"""Characters, about; the text ends with its last whole paragraph."""
PATH = Path(__file__).with_name("prose.txt")

_PEOPLE = [
    "the harbour pilot",
    "Old Marten",
    "the baker's daughter",
    "a surveyor named Ilse",
    "the ferryman",
    "my neighbour Corin",
    "the clock maker",
    "a woman from the hills",
    "the schoolmaster",
    "young Pereg",
    "the lamp keeper",
    "two brothers from Vell",
    "the rope maker",
    "a retired captain",
    "the midwife Anselma",
    "the glass cutter",
    "a clerk from the customs house",
    "the beekeeper",
    "a travelling printer",
    "the miller's apprentice",
    "the bell founder",
    "an orchard owner",
]
_DEEDS = [
    "mended a net",
    "counted the barrels",
    "wrote a letter to the council",
    "carried water up the stairs",
    "measured the depth of the channel",
    "sold the last of the winter apples",
    "painted the shutters blue",
    "repaired the pump behind the chapel",
    "took the early boat to the island",
    "planted beans along the wall",
    "kept a list of every ship that passed",
    "learned to read the tide tables",
    "lost a hat to the wind",
    "found a coin under the floor",
    "baked forty loaves before dawn",
    "drew a map of the marsh",
    "argued about the price of tar",
    "taught the children a song about rivers",
    "oiled the hinges of the sluice gate",
    "walked to the lighthouse and back",
    "built a shelf for the almanacs",
    "tuned the organ in the cold church",
]
_PLACES = [
    "by the quay",
    "behind the granary",
    "at the edge of the salt marsh",
    "on the north road",
    "under the old bridge",
    "in the square",
    "near the weir",
    "above the tannery",
    "beside the drying sheds",
    "at the foot of the hill",
    "in the garden of the inn",
    "on the long pier",
    "where the two canals meet",
    "next to the smithy",
    "beyond the poplars",
    "at the mouth of the river",
    "in the yard of the school",
    "outside the town wall",
]
_TIMES = [
    "That spring",
    "On a grey morning",
    "Late in the year",
    "Before the frost",
    "When the market closed",
    "After the storm",
    "In the week of the fair",
    "One evening",
    "During the long drought",
    "At first light",
    "The following Tuesday",
    "Once the snow had gone",
    "Toward the end of summer",
    "On the day of the census",
    "Not long afterwards",
    "While the kettle boiled",
    "In the quiet hour after noon",
    "Two days later",
]
_THINGS = [
    "the copper kettle",
    "a bundle of sailcloth",
    "the ledger with the red spine",
    "three sacks of barley",
    "the spare anchor",
    "a jar of plum jam",
    "the brass telescope",
    "a basket of eels",
    "the key of the boathouse",
    "an unsigned letter",
    "the broken barometer",
    "a coil of new rope",
    "the village seal",
    "a crate of oranges",
    "the blue lantern",
    "a pair of oars",
    "the carpenter's level",
    "half a wheel of cheese",
]
_CAUSES = [
    "because the road was flooded",
    "since nobody had asked before",
    "although it was a holiday",
    "so that the work could begin at once",
    "while the others slept",
    "as the rule had always been",
    "in spite of the rain",
    "for the sake of an old promise",
    "until the lamps were lit",
    "without telling anyone",
    "as if it were nothing unusual",
    "in return for a day's work",
]
_VERDICTS = [
    "Nobody thought much of it at the time.",
    "It was entered in the town book under repairs.",
    "People spoke of it for weeks.",
    "The council promised to look into the matter.",
    "Some said it would bring luck.",
    "There was no better way to do it.",
    "The dog watched all of this and yawned.",
    "By supper everyone knew.",
    "It cost less than a new roof.",
    "The tide came in as it always did.",
    "A child asked why, and was told to wait.",
    "Only the gulls seemed to object.",
]


class _Dice:
    """A small generator of its own, so that no version of Python changes the text."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, n: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % n

    def of(self, words: Sequence[str]) -> str:
        return words[self.below(len(words))]


def _sentence(dice: _Dice) -> str:
    person, deed, place = dice.of(_PEOPLE), dice.of(_DEEDS), dice.of(_PLACES)
    time, thing, cause = dice.of(_TIMES), dice.of(_THINGS), dice.of(_CAUSES)
    other = dice.of(_PEOPLE)
    forms = (
        f"{time} {person} {deed} {place}, {cause}.",
        f"{time}, {place}, {person} {deed} and left {thing} with {other}.",
        f"{person} {deed} {cause}, and {other} looked after {thing}.",
        f"It was {other} who saw how {person} {deed} {place}.",
        f"They kept {thing} {place}, where {person} once {deed}.",
        f"{time} a stranger asked {person} about {thing}, {cause}.",
        f"Had it not been for {person}, who {deed} {place}, {other} would still be looking for {thing}.",
    )
    text = dice.of(forms)
    return text[0].upper() + text[1:]


def _paragraphs() -> Iterator[str]:
    dice = _Dice(20261130)
    while True:
        sentences = [_sentence(dice) for _ in range(3 + dice.below(4))]
        if dice.below(2):
            sentences.append(dice.of(_VERDICTS))
        yield " ".join(sentences)


def compose() -> str:
    """The text: paragraphs with an empty line between them."""
    made, length = [], 0
    for paragraph in _paragraphs():
        if length + len(paragraph) > LENGTH:
            break
        made.append(paragraph)
        length += len(paragraph) + 2
    return "\n\n".join(made) + "\n"


if __name__ == "__main__":
    PATH.write_text(compose(), encoding="ascii")
