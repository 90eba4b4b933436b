"""Every public name and where it is; `__init__.py` loads them from here, and type checkers read it."""

from .mock import MockFilesystem as MockFilesystem
from .suites import FilesystemProtocolTests as FilesystemProtocolTests
from .suites import FilesystemValidationSuite as FilesystemValidationSuite
