"""The database's tables, with a comment on each column that needs one, and the migrations from older versions.

The DDL says what is stored; code that disagrees with it is wrong. It needs SQLite 3.31 or newer.
"""

SCHEMA_VERSION = 12

DDL = """
-- Values of the whole state directory, by key:
--   lower                    what the state was made for
--   policy.NAME              a setting (see `agentfsd policy`) that is not at its default
--   interpose.NAME           likewise, for descriptors handed to the preloaded library
--   temporary                ids of branches and snapshots that go with the conversation that made them, or at the next start
--   journal                  number of the last journal record that this database has taken over, and its number of commits
--   first object             the first object that this daemon may have made
--   snapshots of BRANCH      the number of the last snapshot that got its name from the branch's
--   lower moved              the last commit whose moves in the lower are in the rows
--   unanswered               requests of the kernel that were carried out but not yet answered
--   worktree BRANCH          git's directory of the linked worktree that the branch is: see core/linked_worktrees.py
--   lent BRANCH              a run changes the branch without the daemon: see core/lent_branches.py
--   last note                the last number that a note, an answer, news of a note or a telling of news got; people type them
--   written past us BRANCH   1: files of the branch may be open for writing in processes that outlive the daemon
CREATE TABLE fact (
    key    TEXT PRIMARY KEY,
    value  TEXT NOT NULL
) WITHOUT ROWID;

-- Numbers that are never used twice. Every number below `reserved` may have been handed out.
CREATE TABLE counter (
    name      TEXT PRIMARY KEY,     -- inode, object, layer, deed, run, step or merge
    reserved  INTEGER NOT NULL
) WITHOUT ROWID;

-- A layer holds what changed between two points of history. A child's id is greater than its parent's, so in any
-- chain the greatest layer id wins. Only a branch's head is written; all others are sealed.
CREATE TABLE layer (
    id      INTEGER PRIMARY KEY,
    parent  INTEGER NOT NULL,       -- 0: the bare lower
    dead    INTEGER NOT NULL DEFAULT 0, -- 1: nothing refers to it; its rows and objects are being removed
    base    TEXT NOT NULL DEFAULT ''    -- the frozen base that is beneath this layer and all above it; '' for the parent's;
                                        -- with * at its end if a layer without it was merged into this one
);
CREATE INDEX layer_parent ON layer (parent);

CREATE TABLE branch (
    id          TEXT PRIMARY KEY,   -- 26 characters, sorts by creation
    name        TEXT NOT NULL UNIQUE,
    head        INTEGER NOT NULL,   -- the one layer this branch writes to; no other branch has it
    base        TEXT NOT NULL,      -- the ref it was made from, as people named it; '' for the bare lower
    base_layer  INTEGER NOT NULL,   -- the sealed layer it was made from; 0 for the bare lower
    created_ns  INTEGER NOT NULL,
    base_id     TEXT NOT NULL DEFAULT ''  -- the branch that it was made from (or from a snapshot of it): names change hands
) WITHOUT ROWID;

CREATE TABLE snapshot (
    id             TEXT PRIMARY KEY,
    name           TEXT NOT NULL UNIQUE,
    branch         TEXT NOT NULL,   -- name of the branch at that time
    branch_id      TEXT NOT NULL,
    layer          INTEGER NOT NULL,-- the newest layer that belongs to it (sealed); 0 for the bare lower
    parent         TEXT NOT NULL,   -- id of the snapshot before it in that history; '' for none
    created_ns     INTEGER NOT NULL,
    tag            TEXT NOT NULL,
    author_pid     INTEGER NOT NULL,-- process that asked; 0 unknown
    file_count     INTEGER,         -- entries stored since the snapshot before; NULL until somebody asks
    bytes_changed  INTEGER,         -- bytes of content stored since then; NULL likewise
    kind           TEXT NOT NULL DEFAULT '',  -- '' asked for by name; kept, tagged, unnamed; else why: run, step, safety, merge
    author         TEXT NOT NULL DEFAULT ''   -- command of the process that asked
) WITHOUT ROWID;

-- A merge: what `layer` (sealed) and all above it hold includes what `other` (sealed, of another branch) held.
CREATE TABLE merged (
    layer  INTEGER NOT NULL,
    other  INTEGER NOT NULL,
    PRIMARY KEY (layer, other)
) WITHOUT ROWID;

-- What can be undone, newest last: the state of a branch before something replaced it.
CREATE TABLE deed (
    id         INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL,       -- restore, merge, commit or discard
    branch_id  TEXT NOT NULL,
    branch     TEXT NOT NULL,       -- the branch's row as it was, a JSON array; for a discard it is made anew from that
    snapshot   TEXT NOT NULL        -- id of the snapshot that holds the state
);

-- Commands that were run in branches: the last hundred of each.
CREATE TABLE run (
    id          INTEGER PRIMARY KEY,
    branch_id   TEXT NOT NULL,
    command     TEXT NOT NULL,      -- as it is shown to people
    exit_code   INTEGER NOT NULL,   -- 128 and the number for a signal
    started_ns  INTEGER NOT NULL,
    ended_ns    INTEGER NOT NULL,
    changed     INTEGER NOT NULL    -- changes of the branch when it ended; -1: counting would have taken too long
);

-- The steps of agents' sessions: before each prompt and each call of a tool, which snapshot holds the state of that moment.
-- Several steps have the same snapshot if nothing changed between them. A step goes with its snapshot.
CREATE TABLE step (
    id          INTEGER PRIMARY KEY,
    session     TEXT NOT NULL,      -- the harness's name for the session
    agent       TEXT NOT NULL,      -- the harness
    branch_id   TEXT NOT NULL,
    turn        INTEGER NOT NULL,   -- 1 for the session's first prompt; 0: before it
    call        INTEGER NOT NULL,   -- 0: the prompt itself; else the number of the tool's call within the turn
    key         TEXT NOT NULL,      -- the harness's name for the call; '' for none
    title       TEXT NOT NULL,      -- the first words of the prompt, or of what the tool was asked to do
    created_ns  INTEGER NOT NULL,
    snapshot    TEXT NOT NULL,      -- id
    restores    INTEGER NOT NULL,   -- id of the branch's last undoable restore at that time; 0 for none
    replaced    INTEGER NOT NULL,   -- 1: a restore or an undo had replaced the branch's files since the session's step before
    home        TEXT NOT NULL       -- id of the branch in which the session goes on: see core/session_steps.py
);

-- A merge that left conflicts in its target. A branch, or a snapshot, is in it if `layer` is in its chain and no `decision` there
-- finishes it. So undo, restore and branches made from that state need nothing of their own.
CREATE TABLE unfinished (
    id      INTEGER PRIMARY KEY,
    layer   INTEGER NOT NULL,       -- the layer that the merge made
    before  INTEGER NOT NULL,       -- the target's sealed layer before the merge
    record  BLOB NOT NULL           -- JSON: sources, conflicts and the layers with their versions; see core/unfinished_merges.py
);

-- What was decided about a path of such a merge. The row of the greatest layer in the chain counts.
CREATE TABLE decision (
    merge  INTEGER NOT NULL,
    path   BLOB NOT NULL,           -- '/': the merge itself
    layer  INTEGER NOT NULL,
    how    TEXT NOT NULL,           -- ours, theirs, edited or marked; for '/' finished
    PRIMARY KEY (merge, path, layer)
) WITHOUT ROWID;

-- Contents in the backstore. Owned by the layer in which they were made; only a head's objects are written.
CREATE TABLE object (
    id     INTEGER PRIMARY KEY,     -- the backstore's object number
    layer  INTEGER NOT NULL         -- 0: garbage, to be removed from the backstore
);
CREATE INDEX object_layer ON object (layer);

-- One version of one file, directory, link or special file. Size and times of a file with an object are the object's.
CREATE TABLE inode (
    id           INTEGER NOT NULL,  -- 1 is every branch's root
    layer        INTEGER NOT NULL,
    ino          INTEGER NOT NULL,  -- st_ino as shown: the lower's own for what came from there
    mode         INTEGER NOT NULL,  -- type and permission bits
    uid          INTEGER NOT NULL,
    gid          INTEGER NOT NULL,
    nlink        INTEGER NOT NULL,  -- 0: gone in this layer and above; a directory's lower_path tells where in the lower it was
    rdev         INTEGER NOT NULL,
    atime_ns     INTEGER NOT NULL,
    mtime_ns     INTEGER NOT NULL,
    ctime_ns     INTEGER NOT NULL,
    btime_ns     INTEGER NOT NULL,  -- creation (or copy-up)
    content      INTEGER NOT NULL,  -- object id; 0: no object (data still in the lower, or no regular file)
    target       BLOB,              -- of a symlink
    xattrs       BLOB,              -- msgpack map of name to value; NULL: none
    lower_path   BLOB,              -- where data (file) or further names (directory) come from; NULL: nothing lower
    lower_ino    INTEGER NOT NULL,  -- identity of the lower object at copy-up, all 0 when there was none:
    lower_dev    INTEGER NOT NULL,  --   0 for the lower root's own device
    lower_size   INTEGER NOT NULL,
    lower_mtime  INTEGER NOT NULL,
    lower_ctime  INTEGER NOT NULL,
    linked       INTEGER NOT NULL,  -- 1: the lower object had several names, which all lead here
    PRIMARY KEY (id, layer)
) WITHOUT ROWID;
CREATE INDEX inode_layer ON inode (layer);
CREATE INDEX inode_origin ON inode (lower_ino) WHERE linked = 1;

-- Names. The row of the greatest layer in the chain counts.
CREATE TABLE dentry (
    dir    INTEGER NOT NULL,        -- inode id of the directory
    name   BLOB NOT NULL,
    layer  INTEGER NOT NULL,
    child  INTEGER NOT NULL,        -- inode id; 0: whiteout
    PRIMARY KEY (dir, name, layer)
) WITHOUT ROWID;
CREATE INDEX dentry_layer ON dentry (layer);
CREATE INDEX dentry_child ON dentry (child);

-- What the lower had under a name when a branch first hid or changed it. The row of the greatest layer in the chain counts;
-- no row: the name was made where the lower had none, or only its attributes were changed (then the inode's row knows).
-- So a whiteout without a row hides what the branch has never seen: it is no deletion. Rows of removed directories stay.
CREATE TABLE origin (
    dir          INTEGER NOT NULL,  -- as in dentry
    name         BLOB NOT NULL,
    layer        INTEGER NOT NULL,
    lower_ino    INTEGER NOT NULL,  -- as in inode
    lower_dev    INTEGER NOT NULL,
    lower_size   INTEGER NOT NULL,
    lower_mtime  INTEGER NOT NULL,
    lower_ctime  INTEGER NOT NULL,
    since_ns     INTEGER NOT NULL,  -- when that was
    base         INTEGER NOT NULL,  -- object with the content it had then, for three-way merges; 0: not kept
    PRIMARY KEY (dir, name, layer)
) WITHOUT ROWID;
CREATE INDEX origin_layer ON origin (layer);

-- What an object held when its layer had been sealed: nobody writes it any more, so it must hold that still. Made when idle.
CREATE TABLE seal (
    object  INTEGER PRIMARY KEY,
    layer   INTEGER NOT NULL,       -- that owned it then; where another owns it now, this row says nothing
    size    INTEGER NOT NULL,       -- bytes
    digest  BLOB NOT NULL           -- BLAKE2b of the content, 16 bytes
);

-- Rules by path: which paths are hidden, denied, asked about or read-only. The last one that matches a path decides.
CREATE TABLE rule (
    scope     TEXT NOT NULL,        -- a branch's id; '': bound processes of every branch; '*': everybody
    position  INTEGER NOT NULL,     -- the order within the scope
    text      TEXT NOT NULL,        -- verb and pattern, such as "deny secrets/**"
    PRIMARY KEY (scope, position)
) WITHOUT ROWID;

-- Notes about branches, and the answers to them. They go with their branch, and come back with it.
CREATE TABLE note (
    id           INTEGER PRIMARY KEY,
    branch_id    TEXT NOT NULL,
    answers      INTEGER NOT NULL,  -- the note that this answers; 0: it is a note itself
    resolved_ns  INTEGER NOT NULL,  -- when it was settled; 0: it is open
    news         INTEGER NOT NULL,  -- a number of the same series, greater each time that a person says something; 0: nobody has
    size         INTEGER NOT NULL,  -- bytes of text and lines
    by_agent     INTEGER NOT NULL,  -- 1: a process of the branch wrote it
    created_ns   INTEGER NOT NULL,
    author       TEXT NOT NULL,     -- for people
    resolved_by  TEXT NOT NULL,     -- likewise
    path         BLOB NOT NULL,     -- what it is about; '' for the branch as a whole
    ino          INTEGER NOT NULL,  -- what was there, as in inode; 0: nothing
    line         INTEGER NOT NULL,  -- the first line, from 1; 0: all of the file
    lines        BLOB NOT NULL,     -- the lines and those around them: see core/noted_lines.py
    text         TEXT NOT NULL
);
CREATE INDEX note_branch ON note (branch_id, answers, resolved_ns, news, size);

-- Of which news each session of an agent was told.
CREATE TABLE told (
    branch_id  TEXT NOT NULL,
    session    TEXT NOT NULL,       -- as in step
    news       INTEGER NOT NULL,    -- a number of that series: all news below it. The greatest is that of the last telling
    PRIMARY KEY (branch_id, session)
) WITHOUT ROWID;
"""

# MIGRATIONS[n] turns a version n database into version n + 1.
MIGRATIONS: dict[int, str] = {
    1: """
ALTER TABLE snapshot ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshot ADD COLUMN author TEXT NOT NULL DEFAULT '';
CREATE TABLE merged (layer INTEGER NOT NULL, other INTEGER NOT NULL, PRIMARY KEY (layer, other)) WITHOUT ROWID;
CREATE TABLE deed (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, branch_id TEXT NOT NULL, branch TEXT NOT NULL, snapshot TEXT NOT NULL
);
CREATE TABLE origin (
    dir INTEGER NOT NULL, name BLOB NOT NULL, layer INTEGER NOT NULL, lower_ino INTEGER NOT NULL, lower_dev INTEGER NOT NULL,
    lower_size INTEGER NOT NULL, lower_mtime INTEGER NOT NULL, lower_ctime INTEGER NOT NULL, since_ns INTEGER NOT NULL,
    base INTEGER NOT NULL, PRIMARY KEY (dir, name, layer)
) WITHOUT ROWID;
CREATE INDEX origin_layer ON origin (layer);
""",
    2: """
ALTER TABLE branch ADD COLUMN base_id TEXT NOT NULL DEFAULT '';
UPDATE branch SET base_id = coalesce(
    (SELECT parent.id FROM branch AS parent WHERE parent.name = branch.base),
    (SELECT snapshot.branch_id FROM snapshot WHERE snapshot.name = branch.base), '');
""",
    3: """
CREATE TABLE seal (object INTEGER PRIMARY KEY, layer INTEGER NOT NULL, size INTEGER NOT NULL, digest BLOB NOT NULL);
""",
    # A tag alone keeps no snapshot any more. Who had said that tagged ones may go had said the same of named ones.
    4: """
INSERT OR REPLACE INTO fact SELECT 'temporary', ids FROM (SELECT group_concat(id, ' ') AS ids FROM snapshot
    WHERE tag = 'temporary: of a running export' AND name GLOB 'export-*') WHERE ids IS NOT NULL;
UPDATE snapshot SET kind = 'tagged' WHERE kind = '' AND tag <> '' AND length(name) > length(substr(branch, 1, 100)) + 1
    AND name = substr(branch, 1, 100) || '-' || CAST(CAST(substr(name, length(substr(branch, 1, 100)) + 2) AS INTEGER) AS TEXT);
INSERT OR IGNORE INTO fact SELECT 'policy.retention.keep_named', 'no' FROM fact
    WHERE key = 'policy.retention.keep_tagged' AND value = 'no';
""",
    # An older daemon would not enforce rules: it must refuse the state.
    5: """
CREATE TABLE IF NOT EXISTS rule (
    scope TEXT NOT NULL, position INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (scope, position)
) WITHOUT ROWID;
""",
    6: """
CREATE TABLE IF NOT EXISTS run (
    id INTEGER PRIMARY KEY, branch_id TEXT NOT NULL, command TEXT NOT NULL, exit_code INTEGER NOT NULL,
    started_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, changed INTEGER NOT NULL
);
""",
    7: """
CREATE TABLE IF NOT EXISTS step (
    id INTEGER PRIMARY KEY, session TEXT NOT NULL, agent TEXT NOT NULL, branch_id TEXT NOT NULL, turn INTEGER NOT NULL,
    call INTEGER NOT NULL, key TEXT NOT NULL, title TEXT NOT NULL, created_ns INTEGER NOT NULL, snapshot TEXT NOT NULL,
    restores INTEGER NOT NULL, replaced INTEGER NOT NULL
);
""",
    8: """
ALTER TABLE step ADD COLUMN home TEXT NOT NULL DEFAULT '';
UPDATE step SET home = branch_id;
""",
    # An older daemon would commit files with conflict markers: it must refuse the state.
    9: """
CREATE TABLE IF NOT EXISTS unfinished (
    id INTEGER PRIMARY KEY, layer INTEGER NOT NULL, before INTEGER NOT NULL, record BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS decision (
    merge INTEGER NOT NULL, path BLOB NOT NULL, layer INTEGER NOT NULL, how TEXT NOT NULL, PRIMARY KEY (merge, path, layer)
) WITHOUT ROWID;
""",
    10: """
CREATE TABLE IF NOT EXISTS note (
    id INTEGER PRIMARY KEY, branch_id TEXT NOT NULL, answers INTEGER NOT NULL, resolved_ns INTEGER NOT NULL,
    news INTEGER NOT NULL, size INTEGER NOT NULL, by_agent INTEGER NOT NULL, created_ns INTEGER NOT NULL, author TEXT NOT NULL,
    resolved_by TEXT NOT NULL, path BLOB NOT NULL, ino INTEGER NOT NULL, line INTEGER NOT NULL, lines BLOB NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS note_branch ON note (branch_id, answers, resolved_ns, news, size);
CREATE TABLE IF NOT EXISTS told (
    branch_id TEXT NOT NULL, session TEXT NOT NULL, news INTEGER NOT NULL, PRIMARY KEY (branch_id, session)
) WITHOUT ROWID;
""",
    # An older daemon would show the real directory beneath every branch: it must refuse the state.
    11: """
ALTER TABLE layer ADD COLUMN base TEXT NOT NULL DEFAULT '';
""",
}
