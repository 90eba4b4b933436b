"""The client of agentfsd: talks to a running daemon. Needs msgspec alone."""
