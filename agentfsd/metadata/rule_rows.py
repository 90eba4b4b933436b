"""The queries of the rules by path."""

from agentfsd.metadata.row_store import Store


def read(store: Store) -> dict[str, list[str]]:
    """Return the text of every rule, in order, by scope."""
    found: dict[str, list[str]] = {}
    for scope, text in store.db.execute("SELECT scope, text FROM rule ORDER BY scope, position"):
        found.setdefault(scope, []).append(text)
    return found


def replace(store: Store, scope: str, texts: list[str]) -> None:
    """Replace the rules of a scope, in the open transaction."""
    store.db.execute("DELETE FROM rule WHERE scope = ?", (scope,))
    for position, text in enumerate(texts):
        store.db.execute("INSERT INTO rule (scope, position, text) VALUES (?, ?, ?)", (scope, position, text))
