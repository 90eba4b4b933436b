"""Reads and changes the settings of an overlay, which are stored in its database."""

from agentfsd.core import declared_settings
from agentfsd.core.copyup_settings import CopyUpRules
from agentfsd.core.retention import Retention, stored_retention
from agentfsd.core.tree import Parts
from agentfsd.metadata.transaction import Transaction


class OverlaySettings:
    """The settings of one overlay. ``agentfsd policy --help`` explains them; declared_settings.py declares them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def values(self) -> dict[str, str]:
        """Return the value of every setting, by name."""
        return declared_settings.read(self._parts.store)

    @property
    def retention(self) -> Retention:
        """The retention.* settings."""
        return stored_retention(self._parts.store)

    def set(self, name: str, value: str) -> None:
        """Change a setting; Refusal for an unknown name or an invalid value."""
        with self._parts.store.transaction() as tx:
            self.put(tx, name, value)

    def put(self, tx: Transaction, name: str, value: str) -> None:
        """Change a setting in the open transaction; Refusal like set()."""
        declared_settings.write(self._parts.store, name, value)
        tx.set(self._parts.copyup_settings, rules=CopyUpRules.stored(self._parts.store))
