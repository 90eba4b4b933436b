"""The registry of backstores: options, help, checks and messages derive from it. A new backstore adds its line here."""

from agentfsd.backstore import hostfs, memfd, ramdisk

DEFAULT = hostfs.KIND
BACKSTORES = {kind.name: kind for kind in (hostfs.KIND, memfd.KIND, ramdisk.KIND)}


def describe() -> str:
    """Return what each backstore is, as the help of an option lists it."""
    return "; ".join(f"{kind.name}: {kind.help}" for kind in BACKSTORES.values())
