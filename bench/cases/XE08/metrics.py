"""Token error rate."""


def distance(reference, hypothesis):
    previous = list(range(len(hypothesis) + 1))
    for i, a in enumerate(reference, 1):
        current = [i]
        for j, b in enumerate(hypothesis, 1):
            current.append(min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a != b)))
        previous = current
    return previous[-1]


class ErrorRate:
    def __init__(self):
        self.errors = 0
        self.tokens = 0

    def update(self, references, hypotheses):
        for reference, hypothesis in zip(references, hypotheses):
            self.errors += distance(reference, hypothesis)
            self.tokens += len(reference)

    def value(self):
        return self.errors / max(self.tokens, 1)
