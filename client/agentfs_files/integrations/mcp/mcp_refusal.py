"""How a tool refuses a call."""


class McpRefused(Exception):
    """A tool refuses a call. The message is one sentence for the model."""
