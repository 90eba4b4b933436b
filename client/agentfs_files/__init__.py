"""One `Filesystem` protocol over several backends, with snapshots, archives, tools for models, sessions and integrations.

`__init__.pyi` lists the public names. Each is loaded at its first use, so importing the package costs almost nothing.
`agentfs_client` exports all of them, too.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ = [name for name in __all__ if not name.startswith("Async")]  # `import *` must not need anyio
