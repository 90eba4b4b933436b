// Made by scripts/typescript from agentfs_client's wire schema. Do not change it here.

/**
 * The messages between clients and the daemon, as they are in JSON. Bytes are base64. Times in nanoseconds are
 * larger than what a number holds exactly: they are true to a quarter of a microsecond.
 */

export declare const PROTOCOL_VERSION: 1;

/** What may be sent again to the next daemon. */
export declare const REPEATABLE: ReadonlySet<string>;

/**
 * What happens in one branch: the processes in it, and what they changed last.
 *
 * `commands` names the commands of bound processes, each once. `changed` and `counted` are as in Branch. `changed_ns` is
 * the time of the last change, 0 if it is not known, and `last_path` what it changed, escaped for people, "" if that is not
 * known. `overlaps` and `conflicts` are as in Branch.
 */
export interface AgentActivity {
  branch: string;
  processes: number;
  commands: string[];
  changed: number;
  counted: boolean;
  changed_ns: number;
  last_path: string;
  overlaps: number;
  conflicts: number;
}

/**
 * Answer a question.
 *
 * `lasts` is `once` (this process and this path), `session` (every process of the branch, until the daemon ends or the
 * rules change), or `rule` (a rule of the branch about this path).
 */
export interface AsksAnswer {
  op: "asks.answer";
  version?: number;
  id: number;
  allow: boolean;
  lasts?: "once" | "session" | "rule";
}

/**
 * Ask which processes wait for an answer because a rule says `ask`. A bound caller sees only processes of its own branch.
 *
 * With `wait`, the daemon replies as soon as a question waits that is not in `known`; through the control file after a
 * second at most.
 */
export interface AsksList {
  op: "asks.list";
  version?: number;
  branch?: string | null;
  wait?: boolean;
  known?: number[];
}

/** The waiting questions, oldest first. After an answer: the question that it answered. */
export interface AsksReply {
  op: "asks";
  asks: PathQuestion[];
}

/**
 * A line of the audit trail: who changed what. `uid` is -1, `pid` 0 and `command` "" if they are not known.
 *
 * `kind` is one of the kinds of an Event. Requests that change no branch have these kinds: policy, interpose, prune, gc,
 * commit-aborted, unmount, attached (a private mount), and refused (a request without permission); `name` gives details.
 * modified: recorded about once a second for each file and process. bound, unbound: `pid` is the process that sent the
 * request; if it named another process, `name` says which. lost: entries are missing; `name` is their number, or killed
 * (about a second was lost when the daemon was killed), or unreadable (all older ones).
 */
export interface AuditEntry {
  path: string;
  raw_path: string;
  old_path: string;
  raw_old_path: string;
  id: number;
  time_ns: number;
  branch: string;
  uid: number;
  pid: number;
  command: string;
  kind: string;
  name: string;
}

/**
 * Ask who changed what.
 *
 * `branch` None means every branch, or for a bound caller its own; the name of a deleted branch is valid. `path` is a glob
 * pattern: `**` matches any depth, and a pattern without a slash matches base names. With `after`, the id of an entry, the
 * reply has the first entries after it; else the last ones. `limit` is 1 to 10,000. Entries are in order. Both times are
 * inclusive; 0 means no limit.
 */
export interface AuditList {
  op: "audit.list";
  version?: number;
  branch?: string | null;
  since_ns?: number;
  until_ns?: number;
  pid?: number;
  path?: string;
  kind?: string;
  after?: number;
  limit?: number;
}

/** Entries of the audit trail. `enabled` says whether entries are being added (`agentfsd policy set audit.enabled yes`). */
export interface AuditReply {
  op: "audit.ok";
  enabled: boolean;
  entries: AuditEntry[];
}

/**
 * Where and how the daemon keeps contents.
 *
 * `why` says why this is not the kind that was requested. `place` is the directory of its files; for the memory backstore,
 * of the files that are too large for memory. `native_snapshots` is reflink or none. Sizes count allocated blocks; blocks that
 * several objects share are counted for each of them. `garbage_...` count objects that nothing refers to; the daemon frees
 * them when it is idle, and the totals include them. `reserve_bytes` is space reserved so that files can still be removed on a
 * full disk.
 */
export interface BackstoreReply {
  op: "backstore.ok";
  kind: string;
  why: string;
  place: string;
  filesystem: string;
  native_snapshots: string;
  objects: number;
  size_bytes: number;
  spilled_objects: number;
  spilled_bytes: number;
  garbage_objects: number;
  garbage_bytes: number;
  reserve_bytes: number;
  free_bytes: number;
  total_bytes: number;
}

/** Ask where contents are kept and how much. The answer covers all branches, so a bound caller may not ask. */
export interface BackstoreStatus {
  op: "backstore.status";
  version?: number;
}

export interface Binding {
  pid: number;
  branch: string;
  explicit: boolean;
  command: string;
  since_ns: number;
}

export interface BindingsReply {
  op: "bindings";
  bindings: Binding[];
}

/**
 * A branch.
 *
 * `base` is the ref it was created from ("" for the bare lower), and `changed` the number of changes since then: the paths
 * that DaemonOperations.changes(own=True) returns. `counted` is false if counting them would take too long: `changed` is
 * then the number of stored changes, which may be higher. `repositories` says what was committed with git since then.
 * `last` is the id of the newest snapshot in its history, or of the snapshot it was created from, or "". `last_name` and
 * `last_ns` are the name and time of the newest snapshot that was taken of it, "" and 0 if there is none. `changed_ns` is
 * the time of the last change in the branch, 0 if it is not known, and `committed_ns` that of its last commit into the real
 * directory, 0 if there was none. `worktree` is git's directory of the linked worktree that the branch is, or "". `overlaps`
 * is the number of paths that other branches have changed, too, and `conflicts` how many of them would conflict in a merge;
 * both are 0 for bound processes. `merging` names the sources of a merge that left conflicts in it and is not finished, and
 * `undecided` is the number of these conflicts that are not settled. `notes` is the number of its open notes. `frozen_ns`
 * is the time of the real directory's state that its unmodified files are from; 0 if they follow the real directory.
 * `last_path` is what was changed last in it, escaped for people; "" if that is not known, or of a single branch.
 * `merged_into` is the branch that holds all of it by a merge, but for `merged_since` stored changes; "" for none, and for
 * bound processes.
 */
export interface Branch {
  name: string;
  id: string;
  base: string;
  created_ns: number;
  changed: number;
  counted: boolean;
  repositories: RepositoryChange[];
  processes: number;
  last: string;
  last_name: string;
  last_ns: number;
  changed_ns: number;
  committed_ns: number;
  worktree: string;
  overlaps: number;
  conflicts: number;
  merging: string[];
  undecided: number;
  notes: number;
  frozen_ns: number;
  last_path: string;
  merged_into: string;
  merged_since: number;
}

/**
 * Bind a process to a branch.
 *
 * `descendants`: bind what the asking process starts from now on, and what is reparented to it, as well.
 */
export interface BranchBind {
  op: "branch.bind";
  version?: number;
  pid: number;
  branch: string;
  brood?: boolean;
}

export interface BranchBindings {
  op: "branch.bindings";
  version?: number;
}

/**
 * Create a branch.
 *
 * A `temporary` branch is deleted at the end of the conversation or at the daemon's next start, unless it was renamed or kept
 * before. The unmodified files of a `frozen` branch are those that the real directory has at this moment, whatever happens
 * there. A branch made from a frozen one has the same base.
 */
export interface BranchCreate {
  op: "branch.create";
  version?: number;
  progress?: boolean;
  name: string;
  source?: string | null;
  temporary?: boolean;
  frozen?: boolean;
}

export interface BranchDelete {
  op: "branch.delete";
  version?: number;
  ref: string;
}

/** Ask for all branches. Without `count`, which is quicker, `changed` of each is 0 and `counted` false. */
export interface BranchList {
  op: "branch.list";
  version?: number;
  count?: boolean;
}

/**
 * A note about a branch, or about a file, a directory or lines in it.
 *
 * `path`, `line` and `last_line` are what it was made about: "" for the branch as a whole, 0 for all of a file. `lines`
 * are these lines as they were then, each cut to 200 characters.
 *
 * `file` says what became of the path: there, renamed, gone, or unread (the caller may not read it, or it is too large to be
 * searched); "" for a note about the branch. `now_path` is where the file is now, "" if it is gone. `place` says what became
 * of the lines: same, moved, or outdated (they changed); "" if that is not known, and for a note about no line. `now_line` and
 * `now_last_line` are where they are now, 0 if they are nowhere.
 *
 * `author` is a user's name, or agent. `by_agent`: a process of the branch made it. `resolved_ns` is 0 while it is open.
 */
export interface BranchNote {
  path: string;
  raw_path: string;
  id: number;
  branch: string;
  branch_id: string;
  text: string;
  author: string;
  by_agent: boolean;
  created_ns: number;
  line: number;
  last_line: number;
  lines: string[];
  file: "" | "there" | "renamed" | "gone" | "unread";
  now_path: string;
  raw_now_path: string;
  place: "" | "same" | "moved" | "outdated";
  now_line: number;
  now_last_line: number;
  resolved_ns: number;
  resolved_by: string;
  answers: NoteAnswer[];
}

export interface BranchRename {
  op: "branch.rename";
  version?: number;
  ref: string;
  new_name: string;
}

export interface BranchReply {
  op: "branch";
  branch: Branch;
}

export interface BranchShow {
  op: "branch.show";
  version?: number;
  ref?: string | null;
}

/** A snapshot. `file_count` and `bytes_changed` count what was stored since `parent`; -1 means not counted yet. */
export interface BranchSnapshot {
  name: string;
  id: string;
  branch: string;
  parent: string;
  created_ns: number;
  tag: string;
  author_pid: number;
  file_count: number;
  bytes_changed: number;
  kind: string;
  author: string;
  merged: string[];
}

export interface BranchUnbind {
  op: "branch.unbind";
  version?: number;
  pid: number;
}

/**
 * Have the mount show a `.git` file at the root of `.agentfs/branches/NAME` that leads to git's directory of a worktree.
 *
 * `directory` is that directory's absolute path; "": the branch is no worktree any more, and shows its own `.git`.
 */
export interface BranchWorktree {
  op: "branch.worktree";
  version?: number;
  ref: string;
  directory: string;
}

export interface BranchesReply {
  op: "branches";
  branches: Branch[];
}

export interface Capabilities {
  op: "capabilities";
  version?: number;
}

export interface CapabilitiesReply {
  op: "capabilities.ok";
  capabilities: Record<string, string>;
}

/**
 * A path that differs.
 *
 * `status` is A added, M content, D deleted, R renamed (and perhaps changed), T type, m mode or owner, or x extended
 * attributes. `what` lists all differences: content, type, mode, owner, xattrs. Sizes are in bytes, -1 on a side without such
 * a file. `executed` says why a program of the user would run the file, or obey it, once it is in the real directory.
 */
export interface Change {
  path: string;
  raw_path: string;
  old_path: string;
  raw_old_path: string;
  status: string;
  old_size: number;
  new_size: number;
  lower_moved: boolean;
  what: string[];
  executed: string;
}

/** Changes, and in `repositories` the git commits, if the request asked for them. */
export interface ChangesReply {
  op: "changes";
  changes: Change[];
  repositories: RepositoryChange[];
}

/** Free unreferenced objects now instead of when the daemon is idle. `forget_undo`: also free what is only kept for undo. */
export interface CollectGarbage {
  op: "gc";
  version?: number;
  progress?: boolean;
  forget_undo?: boolean;
}

/**
 * Apply a branch to the branch or the lower that it was created from.
 *
 * Paths that changed there meanwhile are conflicts, unless `force` overwrites them or `merge` merges them three-way.
 * `as_branches`: apply only its git branches, as `agentfsd/NAME/BRANCH` beside the existing ones. Without `hooks` files
 * that would run on the person's side, such as git's hooks, are conflicts. `internal` and `picked` are as in Merge.
 */
export interface Commit {
  op: "commit";
  version?: number;
  progress?: boolean;
  branch?: string | null;
  paths?: string[];
  raw_paths?: string[];
  picked?: PickedFile[];
  force?: boolean;
  merge?: boolean;
  dry_run?: boolean;
  hooks?: boolean;
  as_branches?: boolean;
  internal?: boolean;
}

/** Finish an interrupted commit into the lower, or undo it with `abort`. */
export interface CommitEnd {
  op: "commit.end";
  version?: number;
  progress?: boolean;
  abort?: boolean;
}

/**
 * A path that cannot be merged or committed.
 *
 * `kind` is content, binary, add/add, modify/delete, rename/rename, rename/delete, rename/add, type, symlink, special,
 * attributes, or drift (the target changed meanwhile).
 */
export interface Conflict {
  path: string;
  raw_path: string;
  kind: string;
  message: string;
  source: string;
  against: string[];
  ours: string;
  theirs: string;
}

/** Ask for the conflicts that a merge has left in a branch, or in a snapshot, and what was decided about them. */
export interface ConflictList {
  op: "conflict.list";
  version?: number;
  branch?: string | null;
}

/**
 * Decide conflicts of a branch, all of them or none. A directory stands for all conflicts below it.
 *
 * `how`: ours or theirs takes that side: in a text with markers for the lines that clash, of a conflict of attributes only
 * these, else all of the file. edited: the file as it is; it must have no conflict markers. marked: the same, whatever is in it.
 *
 * `seen`, with one path: nothing is decided unless it is still what ConflictVersionReply named so, or a file whose content has
 * this hash (SHA-256, in hex). `content`, with edited and `seen`: what the file gets. `merge`, if given, is as in
 * MergeEnd.
 */
export interface ConflictResolve {
  op: "conflict.resolve";
  version?: number;
  progress?: boolean;
  branch?: string | null;
  paths?: string[];
  raw_paths?: string[];
  how: "ours" | "theirs" | "edited" | "marked";
  content?: string | null;
  seen?: string;
  merge?: number;
}

/**
 * Ask for one version of a path with a conflict: of the common state, of the target before the merge, of the source, or as
 * it is now.
 *
 * The reply has at most `size` bytes of a file's content, from `offset` on.
 */
export interface ConflictShow {
  op: "conflict.show";
  version?: number;
  branch?: string | null;
  path?: string;
  raw_path?: string;
  side: "base" | "ours" | "theirs" | "now";
  offset?: number;
  size?: number;
}

/**
 * A version of a path with a conflict. `kind` is file, directory, symlink, other, or none: it does not exist there.
 * `data` is a part of a file's content, or the text of a symlink. `seen`, with side now and offset 0, names the version, for
 * ConflictResolve.
 */
export interface ConflictVersionReply {
  op: "conflict.version";
  kind: string;
  mode: number;
  size: number;
  data: string;
  seen: string;
}

/**
 * The conflicts that a merge of `sources` has left in `branch`, sorted by path.
 *
 * `state` is none (the branch is in no such merge), unfinished, finished or aborted. In the reply to ConflictResolve,
 * `resolved` counts what was decided. In the reply to MergeEnd, `conflicts` are what keeps the merge from being finished,
 * and `changed` the paths that keep it from being taken back. `merge` is the number of the merge, 0 if there is none.
 */
export interface ConflictsReply {
  op: "conflicts";
  branch: string;
  state: string;
  sources: string[];
  conflicts: LeftOpenConflict[];
  resolved: number;
  changed: PathName[];
  merge: number;
}

/**
 * A path that the target and `source` had both changed, and that ours, theirs or union decided.
 *
 * `kind`: as in Conflict, or markers (conflict markers were left in the file), or ignored (git ignores the file on both sides,
 * and it stays as the target has it). `winner`: the branch whose change won; "" if both did.
 */
export interface Decision {
  path: string;
  raw_path: string;
  source: string;
  kind: string;
  winner: string;
}

/**
 * Ask for the changes between two refs.
 *
 * Without `a` and `b`: from the lower to the caller's branch. With `b` alone: from the lower to `b`, or with `own`
 * from what `b` was created from. `paths`, relative to the root, limit the result to files or directories and everything
 * below; `raw_paths` are the same for names that are not UTF-8 (base64 in JSON). A renamed file matches by either name.
 * `histories`: describe git commits. Without `internal`, the files of git's databases are omitted, unless `paths` limit
 * the result.
 */
export interface Diff {
  op: "diff";
  version?: number;
  a?: string | null;
  b?: string | null;
  paths?: string[];
  raw_paths?: string[];
  own?: boolean;
  histories?: boolean;
  internal?: boolean;
}

/**
 * Ask which files differ, each by its path. Directories are omitted, and a renamed file is deleted at one path and added at
 * the other.
 *
 * `a`, `b`, `histories` and `internal` are as in Diff. `count`: also count equal files, which means walking all of
 * `a`.
 */
export interface DiffFiles {
  op: "diff.files";
  version?: number;
  progress?: boolean;
  a?: string | null;
  b?: string | null;
  count?: boolean;
  histories?: boolean;
  internal?: boolean;
}

/**
 * Ask for changes like Diff, with patches in git's format, or with `stat_only` only with the counts.
 *
 * `context_lines` is the number of lines around a change. `ignore_space`: lines that differ in white space only are equal,
 * and files that differ in nothing else are omitted. `own` and `internal` are as in Diff.
 */
export interface DiffPatch {
  op: "diff.patch";
  version?: number;
  progress?: boolean;
  a?: string | null;
  b?: string | null;
  paths?: string[];
  raw_paths?: string[];
  stat_only?: boolean;
  context_lines?: number;
  ignore_space?: boolean;
  own?: boolean;
  internal?: boolean;
}

/** Delete a branch with its changes. With `keep`, undo can bring it back; else its space is freed at once. */
export interface Discard {
  op: "discard";
  version?: number;
  ref: string;
  keep?: boolean;
}

/** The request succeeded. `message` describes the result for people; it may be "". */
export interface Done {
  op: "done";
  message: string;
}

/** The request was refused. `code` is a stable word for programs, `message` one sentence, `hint` a remedy. */
export interface Error {
  op: "error";
  errno: number;
  code: string;
  message: string;
  hint: string;
}

/**
 * Something that happened in `branch`. Events of files have paths relative to the branch's root, written as in Change.
 *
 * modified: sent at the first write, then at most every 0.2 s while writes continue, and after the last one. renamed:
 * `old_path` became `path` and may have replaced another file. attributes: mode, owner, times or extended attributes
 * changed. restore, merge, commit, undo, discard: any part of the tree may have changed; the event does not list the changes.
 *
 * `name` is the name of the snapshot, also for undo; the ref of a restore; the refs of a merge, separated by spaces; the old
 * name of a renamed branch; the ref that a created branch came from. `pid` is the process that acted, or that was bound; 0 if
 * the daemon does not know it.
 *
 * overlap: the branch has changed a path that other branches have changed; conflict: a merge would conflict there. `name` is
 * these branches, separated by a comma and a space. Bound processes are not told.
 *
 * note-added, note-answered, note-resolved, note-reopened, note-removed: `name` is the id of the note, and `path` what it is
 * about; nothing in the branch changes.
 *
 * lost: the client read too slowly, and `count` events are missing here.
 */
export interface Event {
  op: "event";
  kind: "created" | "modified" | "deleted" | "renamed" | "attributes" | "snapshot" | "snapshot-deleted" | "restore" | "merge" | "commit" | "undo" | "discard" | "branch-created" | "branch-renamed" | "branch-deleted" | "bound" | "unbound" | "overlap" | "conflict" | "note-added" | "note-answered" | "note-resolved" | "note-reopened" | "note-removed" | "lost";
  branch: string;
  time_ns: number;
  path: string;
  raw_path: string;
  old_path: string;
  raw_old_path: string;
  is_dir: boolean;
  pid: number;
  name: string;
  count: number;
}

/**
 * Subscribe to the events of a branch. Through the control file the reply comes after a second at most.
 *
 * The daemon sends EventsOk at once, then Events until the client closes its end, or Done if the branch is deleted. `branch`
 * None means every branch, or for a bound caller its own.
 */
export interface Events {
  op: "events";
  version?: number;
  branch?: string | null;
}

/** The subscription to events has begun. No later event is missed. */
export interface EventsOk {
  op: "events.ok";
}

/**
 * A changed file with a patch that `git apply` accepts. Patches of several files may be concatenated.
 *
 * Paths and status are as in Change. `added` and `removed` count lines; they are -1 if `is_binary` or if the file is too
 * large to compare. Sizes are in bytes, -1 on a side without such a file. `patch` (base64 in JSON) is empty if the request
 * only asked for counts. `note` describes what git's format cannot express, such as owners and empty directories.
 */
export interface FilePatch {
  path: string;
  raw_path: string;
  old_path: string;
  raw_old_path: string;
  status: string;
  added: number;
  removed: number;
  is_binary: boolean;
  old_size: number;
  new_size: number;
  old_mode: number;
  new_mode: number;
  patch: string;
  note: string;
  lower_moved: boolean;
}

/**
 * The files that differ, sorted by path. `unchanged` counts equal files; -1 if the request did not ask for it.
 * `repositories` are the git commits, if the request asked for them.
 */
export interface FilesDifferReply {
  op: "diff.files.ok";
  added: PathName[];
  modified: PathName[];
  deleted: PathName[];
  unchanged: number;
  repositories: RepositoryChange[];
}

export interface FreedReply {
  op: "freed";
  objects: number;
  freed_bytes: number;
}

/** Check the stored state. `scrub`: also read the contents of snapshots and compare their checksums. */
export interface Fsck {
  op: "fsck";
  version?: number;
  progress?: boolean;
  scrub?: boolean;
}

export interface GitCommit {
  id: string;
  title: string;
}

export interface Hello {
  op: "hello";
  version?: number;
  client?: string;
}

export interface HelloOk {
  op: "hello.ok";
  version: number;
  daemon: string;
  branch: string;
  bound: boolean;
}

/** Ask how real descriptors are given out, and whether that is possible. */
export interface InterposeGet {
  op: "interpose.get";
  version?: number;
}

/**
 * How the daemon gives out real descriptors.
 *
 * `settings` are texts:
 *
 * - enabled: on or off.
 * - eager_upperization: on copies a file into the branch even if a program only reads it; off gives that program the lower's
 *   file.
 * - max_copy_bytes: the most that may be copied for this if blocks cannot be shared.
 * - require_reflink: on forbids copying.
 * - min_read_bytes: a smaller file that a program only reads stays with the mount.
 * - allow: programs, by path or name, with * and ?, separated by spaces; empty allows all.
 *
 * `possible` says whether this daemon can forward descriptors, and `why` says why not. `socket` is where the preloaded
 * library connects. `open` counts files whose forwarded descriptors are still open.
 */
export interface InterposeReply {
  op: "interpose.ok";
  settings: Record<string, string>;
  possible: boolean;
  why: string;
  socket: string;
  open: number;
}

/**
 * Change one setting: enabled, eager_upperization, max_copy_bytes, require_reflink, min_read_bytes or allow. See
 * InterposeReply.
 */
export interface InterposeSet {
  op: "interpose.set";
  version?: number;
  name: string;
  value: string;
}

/**
 * A FUSE connection to the kernel: that of the mount point (`branch` is ""), or one that shows a branch. For `io` see
 * requests.py.
 */
export interface KernelConnection {
  branch: string;
  session: string;
  io: string;
}

/**
 * A conflict that a merge of `source` has left in a branch.
 *
 * `kind` is as in Conflict, or under-way: git has a merge to finish in the database `path`. `decided` is ours, theirs,
 * edited or marked; "" while it is undecided. `markers`: the file got conflict markers.
 */
export interface LeftOpenConflict {
  path: string;
  raw_path: string;
  kind: string;
  message: string;
  source: string;
  decided: string;
  markers: boolean;
}

export interface Log {
  op: "log";
  version?: number;
  ref?: string | null;
}

/**
 * Merge the refs `sources`, in order, into the branch `target`: all of them or none.
 *
 * With `leave_conflicting`, sources with conflicts are left out, and the others are merged.
 *
 * With `conflicts`, conflicts are left in the target, to be settled there (see ConflictList). Until MergeEnd, the target can
 * be neither committed nor merged. A source that changes what an earlier one has left open is left out.
 *
 * `favor` is the side that wins if both changed the same (union: both, line by line); "" makes that a conflict.
 * `whole_files`: two changes to one file are a conflict even if their lines differ. `markers`: write text conflicts into the
 * files. `histories` says how to combine git histories that have diverged: by a merge commit, by repeating their commits, as
 * one commit, or side by side as branches `agentfsd/NAME/BRANCH`; in the last case nothing else is merged.
 * Without `hooks` a file that would run on the person's side is a conflict. `internal`: list git's own files, too.
 *
 * `paths` and `raw_paths` as in Diff limit it; a later merge does not start from such a merge. `picked`: of these files
 * only some lines, where the old version is the one that the only source was made from.
 */
export interface Merge {
  op: "merge";
  version?: number;
  progress?: boolean;
  sources: string[];
  target?: string | null;
  favor?: "" | "ours" | "theirs" | "union";
  whole_files?: boolean;
  markers?: boolean;
  leave_conflicting?: boolean;
  conflicts?: boolean;
  dry_run?: boolean;
  hooks?: boolean;
  histories?: "merge" | "rebase" | "squash" | "beside";
  internal?: boolean;
  paths?: string[];
  raw_paths?: string[];
  picked?: PickedFile[];
}

/**
 * Finish the merge that has left conflicts in a branch, or take it back with `abort`.
 *
 * It is not finished while conflicts are undecided, or git has a merge to finish in the branch. It is not taken back if other
 * files were changed since, unless `force` says so. The reply tells which paths keep it from that.
 *
 * `merge`, if given, is the number of the merge that was seen: nothing is done if the branch is in another one.
 */
export interface MergeEnd {
  op: "merge.end";
  version?: number;
  progress?: boolean;
  branch?: string | null;
  abort?: boolean;
  force?: boolean;
  merge?: number;
}

/**
 * The result of a merge or commit.
 *
 * If `conflicts` is not empty, nothing has changed, unless the request said `leave_conflicting`.
 *
 * `how` is merged, fast-forward, lower (committed into the real directory), or nothing (there was nothing to do). `into` is
 * the branch or directory. `changed` lists the changes as a diff of the branch or directory before and after would.
 * `said` describes in sentences what happened to git histories. `internal` counts the changes of git's own files, which
 * `changed` includes only if the request asked for them. `undecided` are the conflicts that were left in the target, if the
 * request said `conflicts`.
 */
export interface MergeReply {
  op: "merge.ok";
  how: string;
  into: string;
  changed: MergedPath[];
  conflicts: Conflict[];
  merged: string[];
  left: string[];
  decided: Decision[];
  said: string[];
  internal: number;
  undecided: LeftOpenConflict[];
}

/**
 * A change that a merge or commit makes. `status` is as in Change, or "" if it is not known (in a commit that was
 * interrupted). `sources`: the branches that it comes from; none in a commit.
 */
export interface MergedPath {
  path: string;
  raw_path: string;
  old_path: string;
  raw_old_path: string;
  status: string;
  sources: string[];
}

/**
 * Add a note to a branch.
 *
 * `path` is relative to the root; "" is the branch as a whole. `raw_path` is the same for a name that is not UTF-8 (base64
 * in JSON). `line` to `last_line`, from 1, are the lines that it is about; 0: all of the file. A bound caller adds notes to
 * its own branch only.
 */
export interface NoteAdd {
  op: "note.add";
  version?: number;
  branch?: string | null;
  text: string;
  path?: string;
  raw_path?: string;
  line?: number;
  last_line?: number;
}

/** An answer to a note. The fields are as in BranchNote. */
export interface NoteAnswer {
  id: number;
  text: string;
  author: string;
  by_agent: boolean;
  created_ns: number;
}

/** Answer a note. A bound caller answers notes of its own branch only. */
export interface NoteAnswerAdd {
  op: "note.answer";
  version?: number;
  id: number;
  text: string;
}

/** Ask for the notes of a branch: the open ones, oldest first, and with `resolved` then the others. */
export interface NoteList {
  op: "note.list";
  version?: number;
  branch?: string | null;
  resolved?: boolean;
}

/** Remove a note and its answers. A process of a branch may do so as in NoteResolve. */
export interface NoteRemove {
  op: "note.remove";
  version?: number;
  id: number;
}

export interface NoteReply {
  op: "note";
  note: BranchNote;
}

/**
 * Settle a note, or with `resolved` false open it again. A process of a branch may do so with its branch's own
 * notes, until a person answers them.
 */
export interface NoteResolve {
  op: "note.resolve";
  version?: number;
  id: number;
  resolved?: boolean;
}

/**
 * Ask for the open notes of which a session of an agent was not told, and consider it told of all of them.
 *
 * That counts each note again once a person has answered it or opened it again. At most `most` notes are returned.
 */
export interface NoteTell {
  op: "note.tell";
  version?: number;
  session: string;
  branch?: string | null;
  most?: number;
}

/** Notes. `more` counts those that the reply leaves out. */
export interface NotesReply {
  op: "notes";
  notes: BranchNote[];
  more: number;
}

/** The requests of one kind in a period: the daemon's median, 99th percentile and maximum times for them. */
export interface OperationLoad {
  name: string;
  count: number;
  p50_ns: number;
  p99_ns: number;
  longest_ns: number;
}

/** Ask which paths several branches have changed. What is being compared is waited for at most `patience_s` seconds. */
export interface OverlapsList {
  op: "overlaps";
  version?: number;
  patience_s?: number;
}

/** The paths that several branches have changed, in order. `complete` is false if some changes are yet to be compared. */
export interface OverlapsReply {
  op: "overlaps.ok";
  overlaps: PathOverlap[];
  complete: boolean;
}

export interface PatchesReply {
  op: "patches";
  patches: FilePatch[];
}

/**
 * A path. `path` is for people and shows bytes that are not UTF-8 as \xNN; `raw_path` holds the exact bytes in base64 if
 * `path` does not.
 */
export interface PathName {
  path: string;
  raw_path: string;
}

/**
 * A path, written as in Change, that several `branches` have changed.
 *
 * `conflict` is the kind of conflict that a merge of the two branches `between` would meet there: content, binary, add/add,
 * modify/delete, type, symlink, special or attributes. It is "" if the changes can be merged, or are the same.
 */
export interface PathOverlap {
  path: string;
  raw_path: string;
  branches: string[];
  conflict: string;
  between: string[];
}

/** A process that waits for an answer. `what` is read, write or change: make, remove or rename that name. */
export interface PathQuestion {
  id: number;
  branch: string;
  pid: number;
  command: string;
  path: string;
  what: string;
  asked_ns: number;
}

/** What the rules say about a path: `verdict` is a verb; `rule` is the one that decides, "" if none does. */
export interface PathVerdict {
  path: string;
  verdict: string;
  rule: string;
}

/**
 * A commit into the lower.
 *
 * `phase` is staging, applying, undoing, committed or undone. `running` is false for a commit that was interrupted.
 * `branch` is "" if the branch no longer exists.
 */
export interface PendingCommit {
  branch: string;
  phase: string;
  paths: number;
  running: boolean;
}

/**
 * The only changes of a file that a request takes over: lines, in order, and with `mode` the file's new mode.
 *
 * The request names its path as well. `old_sha256` and `new_sha256`, in hex, are those of the versions that the caller has
 * compared: if the file has another content by now, the request is refused with `picked-stale`; "" stands for no file, None
 * for any. `old_path` is the path of a renamed file in the old state; empty for the same path. `whole`: the file is taken
 * over as it is, if it is what was seen.
 */
export interface PickedFile {
  path: string;
  raw_path: string;
  old_path: string;
  raw_old_path: string;
  lines: PickedLines[];
  mode: boolean;
  whole: boolean;
  old_sha256: string | null;
  new_sha256: string | null;
}

/** Lines of a file's old version that lines of its new version replace, or `text`. Lines count from 0. */
export interface PickedLines {
  old_start: number;
  old_count: number;
  new_start: number;
  new_count: number;
  text: string | null;
}

export interface PolicyGet {
  op: "policy.get";
  version?: number;
}

export interface PolicyReply {
  op: "policy";
  policy: Record<string, string>;
}

export interface PolicySet {
  op: "policy.set";
  version?: number;
  name: string;
  value: string;
}

export interface ProblemsReply {
  op: "problems";
  problems: string[];
}

/**
 * The requests of one process in one branch. `pid` 0 means the kernel or an unknown process. `busy_ns` is the time that
 * the daemon spent on them.
 */
export interface ProcessLoad {
  pid: number;
  command: string;
  branch: string;
  requests: number;
  read_bytes: number;
  written_bytes: number;
  busy_ns: number;
}

/**
 * Progress of a long request, sent before its reply: *done* of *total* steps (0 if the total is not known), and the present
 * activity for people.
 */
export interface Progress {
  op: "progress";
  done: number;
  total: number;
  what: string;
}

/** Delete snapshots. An omitted limit is read from the retention settings. `max_count` is per branch; 0 means no limit. */
export interface Prune {
  op: "prune";
  version?: number;
  branch?: string | null;
  max_count?: number | null;
  max_age?: string | null;
  keep_tagged?: boolean | null;
  keep_named?: boolean | null;
  dry_run?: boolean;
}

/**
 * Put the real directory's present state beneath a branch with a frozen base: a three-way merge.
 *
 * If the reply has conflicts, or with `dry_run`, nothing has changed. `favor` says who wins where the branch and the real
 * directory have changed the same; "" makes that a conflict. `markers`: write conflicts of text into the files. `hooks` and
 * `internal`: as in Merge. None: the caller's branch.
 */
export interface Rebase {
  op: "rebase";
  version?: number;
  progress?: boolean;
  branch?: string | null;
  favor?: "" | "branch" | "base";
  markers?: boolean;
  dry_run?: boolean;
  hooks?: boolean;
  internal?: boolean;
}

/**
 * A command that was run in a branch.
 *
 * `exit_code` is 128 and the number for a signal. Times are in ns since the epoch. `changed` is the number of the branch's
 * changes when the command ended, as in Branch; -1 if counting would have taken too long.
 */
export interface RecordedRun {
  id: number;
  branch: string;
  branch_id: string;
  command: string;
  exit_code: number;
  started_ns: number;
  ended_ns: number;
  changed: number;
}

/** Ask which requests to the mount were refused in a branch since the daemon started. None: in the caller's branch. */
export interface RefusalList {
  op: "refusal.list";
  version?: number;
  branch?: string | null;
}

/** Refused requests, the latest kinds last. */
export interface RefusalsReply {
  op: "refusals";
  refusals: RefusedCount[];
}

/**
 * Requests to the mount of one kind that were refused.
 *
 * `op` is the FUSE operation, `why` the errno's name, `command` the process's command name, "" if unknown. `path` is the
 * file or directory; the directory for a name that was to be created or removed.
 */
export interface RefusedCount {
  op: string;
  path: string;
  why: string;
  count: number;
  command: string;
}

/**
 * The changes that git made in one repository.
 *
 * The path is that of its files. `branch` is the branch that is checked out, or HEAD. `commits` holds the newest of the new
 * commits; `ahead` and `behind` count the commits that were added and lost. `refs` lists other refs that differ.
 * `uncommitted` counts changed files that are in no commit. `sentence` says all this for people.
 */
export interface RepositoryChange {
  path: string;
  raw_path: string;
  branch: string;
  commits: GitCommit[];
  ahead: number;
  behind: number;
  refs: string[];
  uncommitted: number;
  sentence: string;
}

/** Ask the daemon to let another one of the installed version take over. Programs in the mount wait meanwhile. */
export interface Restart {
  op: "restart";
  version?: number;
}

/**
 * Restore a branch. `paths` and `raw_paths` as in Diff limit it; without them everything is restored at once.
 *
 * `ref` None, with paths: restore what the branch was made from. `picked`: of these files only some lines, where the old
 * version is the branch's and the new one that of `ref`.
 */
export interface Restore {
  op: "restore";
  version?: number;
  progress?: boolean;
  ref: string | null;
  branch?: string | null;
  paths?: string[];
  raw_paths?: string[];
  picked?: PickedFile[];
}

/**
 * A rule by path. `scope` is `everybody`, `branches` (bound processes of all branches) or `branch`; `branch` is the
 * branch's name then.
 */
export interface RuleInScope {
  scope: string;
  verb: string;
  pattern: string;
  branch: string;
}

/**
 * Add or remove rules of one scope.
 *
 * The scope is `branch`; or, if that is None, the bound processes of all branches; or, with `everybody`, every process. A
 * rule is a verb (hide, deny, ask, ro, allow) and a pattern as in .gitignore: `deny secrets/**`. The last rule that matches a
 * path decides. The rule `secrets` stands for many rules about files that usually hold passwords and keys. A rule that is
 * added again moves to the end.
 */
export interface RulesChange {
  op: "rules.change";
  version?: number;
  add?: string[];
  remove?: string[];
  branch?: string | null;
  everybody?: boolean;
}

/**
 * Ask for the rules by path.
 *
 * `branch` None means the rules of every scope, or for a bound caller the rules that hold for it. With a branch, the reply has
 * the rules that hold for processes bound to it.
 */
export interface RulesList {
  op: "rules.list";
  version?: number;
  branch?: string | null;
}

/**
 * Keep the rules of a branch in the rest of this conversation, as a process that is bound to it must.
 *
 * A program that acts for an agent asks for this.
 */
export interface RulesObey {
  op: "rules.obey";
  version?: number;
  branch: string;
}

/** Rules in the order in which they count: the last one that matches a path decides. After a change: the changed rules. */
export interface RulesReply {
  op: "rules";
  rules: RuleInScope[];
}

/**
 * Ask what the rules say about paths, relative to the root. A path that ends with a slash is a directory. `branch` as in
 * RulesList; None means main for an unbound caller.
 */
export interface RulesTest {
  op: "rules.test";
  version?: number;
  paths: string[];
  branch?: string | null;
}

/**
 * Record that a command was run in a branch.
 *
 * `command` is for people; the first 1,000 characters are kept. `exit_code` is 128 and the number for a signal. Times are in
 * ns since the epoch. Only a process outside of all branches may record a run.
 */
export interface RunAdd {
  op: "run.add";
  version?: number;
  branch?: string | null;
  command: string;
  exit_code: number;
  started_ns: number;
  ended_ns: number;
}

/**
 * Ask for the commands that were run in a branch, oldest first: the last 100. `branch` None: in all branches; for a bound
 * caller in its own. `last_only`: of each branch only the last; `each_command`: of each branch the last of each command.
 */
export interface RunList {
  op: "run.list";
  version?: number;
  branch?: string | null;
  last_only?: boolean;
  each_command?: boolean;
}

export interface RunReply {
  op: "run";
  run: RecordedRun;
}

export interface RunsReply {
  op: "runs";
  runs: RecordedRun[];
}

/**
 * A moment of an agent's session: before a prompt (`call` is 0), or before a call of a tool.
 *
 * `session` and `key` are the harness's names for the session and the call, `agent` is the harness. `turn` counts the
 * prompts, `call` the calls within a turn. `title` is the beginning of what was asked. `snapshot` (its id is
 * `snapshot_id`) holds the state of `branch` (`branch_id`) at that moment. `replaced`: a restore or an undo had replaced
 * the branch's files since the step before. `home_id`: the branch in which the session goes on when it is resumed. No process
 * that is bound to another branch decides that.
 */
export interface SessionStep {
  id: number;
  session: string;
  agent: string;
  branch: string;
  branch_id: string;
  turn: number;
  call: number;
  key: string;
  title: string;
  created_ns: number;
  snapshot: string;
  snapshot_id: string;
  replaced: boolean;
  home_id: string;
}

/** Ask the daemon to unmount and end; with *force* even while the mount is in use. */
export interface Shutdown {
  op: "shutdown";
  version?: number;
  force?: boolean;
}

/** A request that took longer than log.slow_ms. `where` is its path, or the subject of a control request. */
export interface SlowRequest {
  time_ns: number;
  took_ns: number;
  request: string;
  where: string;
  branch: string;
  pid: number;
  command: string;
}

/**
 * Take a snapshot.
 *
 * `around_run`: it is taken automatically before or after a command, so retention may delete it; this also holds for a
 * snapshot with a tag and without a name. `keep`: retention must not delete it. `temporary`: as for BranchCreate.
 */
export interface SnapshotCreate {
  op: "snapshot.create";
  version?: number;
  branch?: string | null;
  name?: string | null;
  tag?: string;
  around_run?: boolean;
  keep?: boolean;
  temporary?: boolean;
}

export interface SnapshotDelete {
  op: "snapshot.delete";
  version?: number;
  ref: string;
}

export interface SnapshotList {
  op: "snapshot.list";
  version?: number;
  branch?: string | null;
}

export interface SnapshotReply {
  op: "snapshot";
  snapshot: BranchSnapshot;
}

export interface SnapshotShow {
  op: "snapshot.show";
  version?: number;
  ref: string;
}

export interface SnapshotsReply {
  op: "snapshots";
  snapshots: BranchSnapshot[];
}

export interface Status {
  op: "status";
  version?: number;
}

/**
 * The state of the daemon.
 *
 * `usage` counts branches, snapshots, objects and bytes. `session_why` says why the daemon uses this kind of session;
 * `backstore_why` says why the backstore is not the requested one. `cap_backstore` is the backstore's kind and abilities, as
 * in capabilities. `fd_forwarding` is off, or shim if the daemon gives out real descriptors.
 *
 * `resources` is what the daemon itself uses, as far as it is known: rss_bytes, descriptors, connections, nodes, handles,
 * inodes, processes, database_bytes, disk_free_bytes and disk_total_bytes (of the file system with the contents),
 * garbage_objects (to be freed), notifications (not yet accepted by the kernel), requests (answered so far), slow_requests, and
 * lag_us (the longest delay of the event loop within the last minute).
 *
 * `restarts` says why no daemon is started in the place of this one if it is killed; "" if one is. `succeeds` counts the
 * daemons that served this mount before, and were killed or replaced.
 *
 * `slow` lists recent slow requests, newest last. `audit` says whether the audit trail is written. `metrics` is the
 * address where metrics are served, or "". `damage` lists content that was lost, damaged or set aside.
 */
export interface StatusReply {
  op: "status.ok";
  daemon: string;
  pid: number;
  lower: string;
  mountpoint: string;
  state: string;
  session: string;
  backstore: string;
  started_ns: number;
  branch: string;
  bound: boolean;
  branches: Branch[];
  bindings: Binding[];
  usage: Record<string, number>;
  resources: Record<string, number>;
  session_why: string;
  cap_backstore: string;
  backstore_why: string;
  fd_forwarding: string;
  connections: KernelConnection[];
  pending_commit: PendingCommit | null;
  slow: SlowRequest[];
  audit: boolean;
  metrics: string;
  damage: string[];
  restarts: string;
  succeeds: number;
}

/**
 * Ask what has changed in a branch since a step of a session.
 *
 * The step is that with `key`, or the session's last one. At most `most` changes are listed, deleted paths first. The files
 * of git's databases are left out.
 */
export interface StepChanges {
  op: "step.changes";
  version?: number;
  session: string;
  branch?: string | null;
  key?: string;
  most?: number;
}

/**
 * What has changed since `step`: the number of all changes by status, as in Change, and some of them. `replaced`: a
 * restore or an undo has replaced the branch's files since the step before that. `notes`: as in StepReply.
 */
export interface StepChangesReply {
  op: "step.changes.ok";
  step: SessionStep;
  counts: Record<string, number>;
  changes: Change[];
  replaced: boolean;
  notes: number;
}

/**
 * Ask for the steps of sessions, oldest first. `branch` None: of all branches; for a bound caller of its own. `session`
 * "": of all sessions.
 */
export interface StepList {
  op: "step.list";
  version?: number;
  branch?: string | null;
  session?: string;
}

/**
 * The step that was noted. `is_new`: its snapshot was taken for it. `notes`: how many open notes of the branch the
 * session was not told of yet.
 */
export interface StepReply {
  op: "step";
  step: SessionStep;
  is_new: boolean;
  notes: number;
}

/**
 * Note a step of a session, with a snapshot of the branch's state.
 *
 * If the branch has not changed since its newest snapshot, that one is taken. `session` and `key` are the harness's names
 * for the session and for the prompt or the call of a tool, `agent` is the harness. `prompt`: a new turn begins; else a tool
 * is called. `title`: what is asked, in a few words. The same event twice within two seconds is one step if nothing changed
 * between.
 */
export interface StepTake {
  op: "step.take";
  version?: number;
  session: string;
  branch?: string | null;
  agent?: string;
  prompt?: boolean;
  key?: string;
  title?: string;
}

export interface StepsReply {
  op: "steps";
  steps: SessionStep[];
}

/** Make the temporary branches and snapshots of this conversation permanent. */
export interface TemporaryKeep {
  op: "temporary.keep";
  version?: number;
}

/**
 * Observe the requests to the mount for `seconds`, 0.05 to 60, after which the reply is sent. A bound caller sees only its
 * own branch.
 */
export interface Top {
  op: "top";
  version?: number;
  seconds?: number;
}

/**
 * The requests within `span_ns`.
 *
 * The daemon does not see reads, opens and look-ups that the kernel answers from its caches, nor reads and writes that bypass it
 * (--io passthrough, forwarded descriptors).
 */
export interface TopReply {
  op: "top.ok";
  span_ns: number;
  operations: OperationLoad[];
  processes: ProcessLoad[];
  read_bytes: number;
  written_bytes: number;
  lag_ns: number;
  agents: AgentActivity[];
}

/** Undo the last restore, merge, commit to a branch, or discard. */
export interface Undo {
  op: "undo";
  version?: number;
}

/**
 * Something that can be undone. `kind`: restore, merge, commit or discard; `snapshot` holds the previous state.
 *
 * `committed`: a branch that was committed into the real directory later, which stays as it is; "" if none was.
 */
export interface UndoEntry {
  kind: string;
  branch: string;
  snapshot: string;
  committed: string;
}

export interface UndoList {
  op: "undo.list";
  version?: number;
}

/** What was undone or can be undone, newest first. */
export interface UndoLogReply {
  op: "deeds";
  deeds: UndoEntry[];
}

export interface VerdictsReply {
  op: "rules.verdicts";
  verdicts: PathVerdict[];
}

/** Say that the run for which this conversation has opened a view has ended. The end of the conversation says so, too. */
export interface ViewLeave {
  op: "view.leave";
  version?: number;
}

/** The request and the reply of each operation. */
export interface Exchanges {
  "asks.answer": { request: AsksAnswer; reply: AsksReply };
  "asks.list": { request: AsksList; reply: AsksReply };
  "audit.list": { request: AuditList; reply: AuditReply };
  "backstore.status": { request: BackstoreStatus; reply: BackstoreReply };
  "branch.bind": { request: BranchBind; reply: Done };
  "branch.bindings": { request: BranchBindings; reply: BindingsReply };
  "branch.create": { request: BranchCreate; reply: BranchReply };
  "branch.delete": { request: BranchDelete; reply: Done };
  "branch.list": { request: BranchList; reply: BranchesReply };
  "branch.rename": { request: BranchRename; reply: BranchReply };
  "branch.show": { request: BranchShow; reply: BranchReply };
  "branch.unbind": { request: BranchUnbind; reply: Done };
  "branch.worktree": { request: BranchWorktree; reply: BranchReply };
  "capabilities": { request: Capabilities; reply: CapabilitiesReply };
  "commit": { request: Commit; reply: MergeReply };
  "commit.end": { request: CommitEnd; reply: MergeReply };
  "conflict.list": { request: ConflictList; reply: ConflictsReply };
  "conflict.resolve": { request: ConflictResolve; reply: ConflictsReply };
  "conflict.show": { request: ConflictShow; reply: ConflictVersionReply };
  "diff": { request: Diff; reply: ChangesReply };
  "diff.files": { request: DiffFiles; reply: FilesDifferReply };
  "diff.patch": { request: DiffPatch; reply: PatchesReply };
  "discard": { request: Discard; reply: Done };
  "events": { request: Events; reply: EventsOk };
  "fsck": { request: Fsck; reply: ProblemsReply };
  "gc": { request: CollectGarbage; reply: FreedReply };
  "hello": { request: Hello; reply: HelloOk };
  "interpose.get": { request: InterposeGet; reply: InterposeReply };
  "interpose.set": { request: InterposeSet; reply: InterposeReply };
  "log": { request: Log; reply: SnapshotsReply };
  "merge": { request: Merge; reply: MergeReply };
  "merge.end": { request: MergeEnd; reply: ConflictsReply };
  "note.add": { request: NoteAdd; reply: NoteReply };
  "note.answer": { request: NoteAnswerAdd; reply: NoteReply };
  "note.list": { request: NoteList; reply: NotesReply };
  "note.remove": { request: NoteRemove; reply: Done };
  "note.resolve": { request: NoteResolve; reply: NoteReply };
  "note.tell": { request: NoteTell; reply: NotesReply };
  "overlaps": { request: OverlapsList; reply: OverlapsReply };
  "policy.get": { request: PolicyGet; reply: PolicyReply };
  "policy.set": { request: PolicySet; reply: PolicyReply };
  "prune": { request: Prune; reply: SnapshotsReply };
  "rebase": { request: Rebase; reply: MergeReply };
  "refusal.list": { request: RefusalList; reply: RefusalsReply };
  "restart": { request: Restart; reply: Done };
  "restore": { request: Restore; reply: Done };
  "rules.change": { request: RulesChange; reply: RulesReply };
  "rules.list": { request: RulesList; reply: RulesReply };
  "rules.obey": { request: RulesObey; reply: Done };
  "rules.test": { request: RulesTest; reply: VerdictsReply };
  "run.add": { request: RunAdd; reply: RunReply };
  "run.list": { request: RunList; reply: RunsReply };
  "shutdown": { request: Shutdown; reply: Done };
  "snapshot.create": { request: SnapshotCreate; reply: SnapshotReply };
  "snapshot.delete": { request: SnapshotDelete; reply: Done };
  "snapshot.list": { request: SnapshotList; reply: SnapshotsReply };
  "snapshot.show": { request: SnapshotShow; reply: SnapshotReply };
  "status": { request: Status; reply: StatusReply };
  "step.changes": { request: StepChanges; reply: StepChangesReply };
  "step.list": { request: StepList; reply: StepsReply };
  "step.take": { request: StepTake; reply: StepReply };
  "temporary.keep": { request: TemporaryKeep; reply: Done };
  "top": { request: Top; reply: TopReply };
  "undo": { request: Undo; reply: UndoLogReply };
  "undo.list": { request: UndoList; reply: UndoLogReply };
  "view.leave": { request: ViewLeave; reply: Done };
}

export type Operation = keyof Exchanges;
