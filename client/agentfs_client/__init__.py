"""The client of agentfsd: one `Filesystem` over several backends, and whatever talks to a running daemon.

Every public name can be imported from here (`__init__.pyi` lists them). Each is loaded when it is first asked for, so that
importing this costs next to nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ = [
    name for name in __all__ if not name.startswith("Async") and name != "open"
]  # `import *` needs no anyio, and hides no builtin
