"""Which branches are lent to runs that change them without the daemon, stored in the database with the layers that this needs.

A loan begins in the transaction that seals the layer beneath the run, so no start of a daemon frees that layer. When the branch
gets another state meanwhile, the same transaction notes which state programs still see.
"""

from typing import NamedTuple

from agentfsd.metadata.row_store import Store


class Loan(NamedTuple):
    """One loan.

    Attributes:
        base: The sealed layer beneath what the run writes; 0 for the bare lower.
        mark: What the run's own record has to say, too: else that is of another loan.
        shown: The layer whose state programs still see, if the branch has got another one; 0 if they see the branch's.
    """

    base: int
    mark: str
    shown: int = 0

    def layers(self) -> list[int]:
        """Return the layers that it needs."""
        return [layer for layer in (self.base, self.shown) if layer]


def find(store: Store, branch_id: str) -> Loan | None:
    """Return the loan of a branch; None if it is not lent."""
    words = store.value(_key(branch_id)).split()
    return Loan(int(words[0]), words[1], int(words[2])) if len(words) == 3 else None


def put(store: Store, branch_id: str, loan: Loan | None) -> None:
    """Store the loan of a branch, or that there is none, in the open transaction."""
    store.put_value(_key(branch_id), "" if loan is None else f"{loan.base} {loan.mark} {loan.shown}")


def _key(branch_id: str) -> str:
    return f"lent {branch_id}"
