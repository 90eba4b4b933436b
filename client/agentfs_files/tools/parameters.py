"""The parameters of the tools. Descriptions are for the model. Unknown fields are refused, so that typing errors do not go
unnoticed.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from agentfs_files.filesystem.file_results import WriteMode

OutputMode = Literal["content", "files", "count"]
Order = Literal["path", "newest"]

_File = Annotated[str, Meta(description="Path of the file, relative to the root of the workspace.", min_length=1)]
_Positive = Annotated[int, Meta(ge=1)]
_IncludeIgnored = Annotated[bool, Meta(description="Also look at what .gitignore and .ignore files exclude, and into .git.")]


class _Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class LsParams(_Parameters, frozen=True):
    path: Annotated[str, Meta(description="Directory to list, relative to the root of the workspace.")] = "."


class ReadFileParams(_Parameters, frozen=True):
    path: _File
    offset: Annotated[int, Meta(description="How many lines to skip: 0 begins with line 1.", ge=0)] = 0
    limit: Annotated[_Positive | None, Meta(description="How many lines to show at most; 2,000 when it is left out.")] = None


class WriteFileParams(_Parameters, frozen=True):
    path: _File
    content: Annotated[str, Meta(description="The text, as it is to stand in the file; at most 48,000 characters.")]
    mode: Annotated[
        WriteMode,
        Meta(description="overwrite: replace the file or create it; create: fail where there is one; append: add to its end."),
    ] = "overwrite"


class EditFileParams(_Parameters, frozen=True):
    path: _File
    old_string: Annotated[
        str, Meta(description="The text to replace, exactly as in the file (white space, too), without line numbers.")
    ]
    new_string: Annotated[str, Meta(description="What to put in its place; empty to remove it.")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence; otherwise there must be exactly one.")] = False


class GlobParams(_Parameters, frozen=True):
    pattern: Annotated[
        str, Meta(description="Such as `**/*.py` or `src/*.txt`; ** stands for any number of directories.", min_length=1)
    ]
    path: Annotated[str, Meta(description="Directory in which to look; the pattern is relative to it.")] = "."
    order: Annotated[Order, Meta(description="path: by name; newest: what was changed last comes first.")] = "path"
    include_ignored: _IncludeIgnored = False


class GrepParams(_Parameters, frozen=True):
    pattern: Annotated[
        str, Meta(description="Regular expression (RE2: no look-around, no back-references), tried on each line.", min_length=1)
    ]
    path: Annotated[str, Meta(description="File or directory in which to search.")] = "."
    glob: Annotated[
        str | None, Meta(description="Only files that match, such as `*.py`; without a slash it is about their names.")
    ] = None
    output_mode: Annotated[
        OutputMode, Meta(description="content: the lines; files: which files have any; count: how many lines in each file.")
    ] = "content"
    ignore_case: bool = False
    context: Annotated[int, Meta(description="How many lines to show before and after each match.", ge=0, le=20)] = 0
    max_matches: Annotated[_Positive | None, Meta(description="How many matching lines at most; 1,000 when it is left out.")] = (
        None
    )
    include_ignored: _IncludeIgnored = False


class RmParams(_Parameters, frozen=True):
    path: Annotated[str, Meta(description="File or directory to remove, relative to the root of the workspace.", min_length=1)]
    recursive: Annotated[bool, Meta(description="Needed for a directory that holds something: removes it with all in it.")] = (
        False
    )
