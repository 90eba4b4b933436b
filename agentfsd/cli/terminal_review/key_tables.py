"""The keys of each screen, as `?` lists them."""

BOARD = (
    ("Enter", "open the branch"),
    ("space", "mark the branch, or not"),
    ("c", "compare the marked branches; without marks, those that are shown"),
    ("/", "show only branches with these words in name, command, processes or note; Esc shows all"),
    ("p", "show only branches whose last command passed"),
    ("s", "change the order"),
    ("D", "discard the branch"),
    ("u", "undo the last restore, merge, commit to a branch, or discard"),
    ("j k, arrows", "next, previous branch"),
    ("q, Ctrl-C", "leave"),
)

BRANCH = (
    ("j k", "next, previous hunk"),
    ("n p", "next, previous file"),
    ("arrows, PgUp PgDn, g G", "scroll"),
    ("space", "choose the hunk, or not; in the tree: the file"),
    ("a", "all hunks of the file, or none"),
    ("A", "all hunks of the branch, or none"),
    ("e", "split the hunk"),
    ("v", "the file is viewed: fold it, and go on"),
    ("o", "fold or unfold the file"),
    ("/", "go to the next file with a word in its path"),
    ("c", "commit the chosen hunks; with none chosen, the whole branch"),
    ("m", "merge them into another branch"),
    ("d", "take the chosen hunks back"),
    ("D", "discard the branch"),
    ("u", "undo the last restore, merge, commit to a branch, or discard"),
    ("x", "conflicts that a merge left in the branch"),
    ("r", "read the branch again"),
    ("t, Tab", "hide or show the tree; between tree and diff"),
    ("q, Esc", "back"),
    ("Ctrl-C", "leave the program"),
)

CONFLICTS = (
    ("n p", "next, previous path"),
    ("j k", "next, previous block of a text"),
    ("o t b", "for this block: ours, theirs, both; when all blocks are decided, you are asked"),
    ("O T", "for the whole path: ours, theirs"),
    ("M", "the path is right as it is now"),
    ("e", "edit the file in $VISUAL or $EDITOR"),
    ("w", "all of the file, or only the block"),
    ("f", "finish the merge"),
    ("X", "take the merge back"),
    ("u", "undo the last decision, merge or the like"),
    ("r", "read again"),
    ("Tab, arrows", "between the panes; scroll"),
    ("q, Esc", "back"),
)
