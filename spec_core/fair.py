"""Whose turn it is, and how long the others will wait: nobody's second run comes before another's first."""

from dataclasses import dataclass, field

MEMORY = 0.5  # share of a newly measured pace in what is expected next


@dataclass
class Turns:
    """Start-time fair queueing. Every run gets the number of a turn, the lowest is served first.

    An owner's runs take turns one after another, and nobody starts behind the turn being served: whoever comes late is
    not put behind all that one other person asked for, and whoever comes again and again keeps nobody waiting.
    """

    served: int = 0
    after: dict[str, int] = field(default_factory=dict[str, int])

    def take(self, owner: str) -> int:
        turn = max(self.served, self.after.get(owner, 0))
        self.after = {who: n for who, n in self.after.items() if n > self.served} | {owner: turn + 1}
        return turn

    def serve(self, turn: int) -> None:
        self.served = max(self.served, turn)


@dataclass
class Paces:
    """Seconds per piece of work, by kind of run, as the last ones took them."""

    known: dict[str, float] = field(default_factory=dict[str, float])

    def hear(self, kind: str, work: int, seconds: float) -> None:
        new = seconds / max(1, work)
        old = self.known.get(kind, new)
        self.known[kind] = old + MEMORY * (new - old)

    def seconds(self, kind: str, work: int) -> float | None:
        """What such a run will take; of a kind not yet seen, what the others take; None before the first."""
        if not self.known:
            return None
        others = sum(self.known.values()) / len(self.known)
        return work * self.known.get(kind, others)
