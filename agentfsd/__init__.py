"""agentfsd: a copy-on-write overlay for many agents on one workspace."""

__version__ = "0.1.0"
