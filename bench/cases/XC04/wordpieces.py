"""Byte pairs in plain Python."""

import re
from itertools import pairwise

WORD = re.compile(r"[a-z]+|\d|[^\sa-z\d]")


class Pieces:
    def __init__(self, merges):
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        letters = sorted({letter for pair in merges for part in pair for letter in part})
        joined = ["".join(pair) for pair in merges]
        self.ids = {piece: number for number, piece in enumerate(dict.fromkeys(letters + joined), start=3)}

    def words(self, text):
        return WORD.findall(text.lower())

    def split(self, word):
        parts = list(word)
        while len(parts) > 1:
            pair = min(pairwise(parts), key=lambda pair: self.ranks.get(pair, 1 << 30))
            if pair not in self.ranks:
                break
            merged, place = [], 0
            while place < len(parts):
                if tuple(parts[place : place + 2]) == pair:
                    merged.append(parts[place] + parts[place + 1])
                    place += 2
                else:
                    merged.append(parts[place])
                    place += 1
            parts = merged
        return [self.ids.get(part, 1) for part in parts]


def learn(words, count):
    """The most frequent pairs, in one pass over growing pieces."""
    split = {word: list(word) for word in words}
    merges = []
    for _ in range(count):
        tally = {}
        for parts in split.values():
            for pair in pairwise(parts):
                tally[pair] = tally.get(pair, 0) + 1
        if not tally:
            break
        best = max(tally, key=tally.get)
        merges.append(best)
        for word, parts in split.items():
            for place in range(len(parts) - 1, 0, -1):
                if (parts[place - 1], parts[place]) == best:
                    parts[place - 1 : place + 1] = ["".join(best)]
    return merges
