"""One `Filesystem` over several backends, with snapshots, archives, tools for models, sessions and integrations.

`__init__.pyi` lists the public names. Each is loaded when it is first asked for, so importing the package costs next to nothing.
`agentfs_client` passes all of them on.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ = [name for name in __all__ if not name.startswith("Async")]  # `import *` needs no anyio
