"""For tests: a file system that records calls, and suites that any backend can run (they need pytest)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
