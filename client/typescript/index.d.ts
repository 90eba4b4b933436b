import type { ChildProcess, SpawnOptions } from "node:child_process";

import type * as wire from "./wire.js";
import type { Exchanges, Operation } from "./wire.js";

export type * from "./wire.js";
export { PROTOCOL_VERSION } from "./wire.js";

/** The daemon refused a request, or it could not be delivered. */
export declare class AgentFSError extends Error {
  /** A stable word, such as "not-found", "conflict", "no-daemon", "daemon-gone". */
  readonly code: string;
  /** The error's number in Linux; 0 if it has none. */
  readonly errno: number;
  /** What to do next; "" if there is nothing to say. */
  readonly hint: string;
}

/** How a long request is followed and ended. Progress is told over the socket only. */
export interface Following {
  onProgress?: (progress: wire.Progress) => void;
  /** Aborting ends the conversation, and the daemon gives the request up. The next request begins another conversation. */
  signal?: AbortSignal;
}

export interface CommandOptions extends Omit<SpawnOptions, "stdio" | "detached"> {
  /** The program agentfsd; by default the one in PATH. */
  program?: string;
  /** Options of `agentfsd run`, such as ["--confine", "strict"]. */
  runOptions?: string[];
}

export interface RunOptions extends CommandOptions {
  /** Milliseconds until the command and what it started are killed. */
  timeoutMs?: number;
  /** Aborting kills the command and what it started. */
  signal?: AbortSignal;
  input?: string | Uint8Array;
}

export interface CommandResult {
  /** The exit code; null if a signal ended it. */
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
  timedOut: boolean;
}

type Fields<O extends Operation> = Omit<Exchanges[O]["request"], "op" | "version" | "progress">;
type Arguments<O extends Operation> = {} extends Fields<O>
  ? [fields?: Fields<O>, following?: Following]
  : [fields: Fields<O>, following?: Following];

/**
 * A conversation with the daemon of one mount. Requests are answered one after the other. If the daemon is restarted, the
 * conversation goes on with the next one.
 *
 * A branch that is left out is the caller's own: the one that this process is bound to, else main. Every method rejects with an
 * AgentFSError if the daemon refuses.
 */
export declare class AgentFS {
  private constructor();

  /** Connects by the mount point, or by the path of the daemon's socket. */
  static connect(where: { mount: string } | { socket: string }): Promise<AgentFS>;

  /** The mount point. */
  readonly mount: string;
  /** What the daemon answered at the beginning. */
  readonly hello: wire.HelloOk;

  /** Sends any request of the protocol. */
  ask<O extends Operation>(op: O, ...rest: Arguments<O>): Promise<Exchanges[O]["reply"]>;
  /** Ends the conversation. */
  close(): void;

  branches(): Promise<wire.Branch[]>;
  branch(ref?: string): Promise<wire.Branch>;
  /** Creates a branch from a ref; by default from the present state of main. A temporary one ends with the conversation. */
  createBranch(name: string, options?: { source?: string; temporary?: boolean }): Promise<wire.Branch>;
  /** Deletes a branch with its changes. undo() brings it back, unless `keep` is false. */
  discard(ref: string, options?: { keep?: boolean }): Promise<void>;
  /** Binds a process to a branch, which it and its children then see at the mount point. It cannot leave by itself. */
  bind(branch: string, options?: { pid?: number; descendants?: boolean }): Promise<void>;

  /** Takes a snapshot, in about a millisecond. */
  snapshot(branch?: string, options?: { name?: string; tag?: string; keep?: boolean }): Promise<wire.BranchSnapshot>;
  snapshots(branch?: string): Promise<wire.BranchSnapshot[]>;
  /** Restores a branch, or some of its paths, from a snapshot. Returns what was done, for people. */
  restore(ref: string, options?: { branch?: string; paths?: string[] } & Following): Promise<string>;
  /** Takes back the last restore, merge, commit to a branch, or discard. */
  undo(): Promise<wire.UndoEntry>;

  /** Returns what differs between `base` (by default the real directory) and a branch. `own`: since the branch was created. */
  diff(branch?: string, options?: { base?: string; paths?: string[]; own?: boolean; internal?: boolean }): Promise<wire.Change[]>;
  /** Returns the same as a patch for `git apply`. */
  patch(branch?: string, options?: { base?: string; paths?: string[]; own?: boolean; internal?: boolean } & Following): Promise<string>;
  /** Merges branches into another one: all or none. If the reply has conflicts, nothing has changed. */
  merge(sources: string[], target?: string, options?: Partial<Omit<Fields<"merge">, "sources" | "target">> & Following): Promise<wire.MergeReply>;
  /** Applies a branch to what it was created from, such as the real directory. If there are conflicts, nothing has changed. */
  commit(branch?: string, options?: Omit<Fields<"commit">, "branch"> & Following): Promise<wire.MergeReply>;

  status(): Promise<wire.StatusReply>;
  /** Yields what happens in a branch, or in all of them, from now on. Has a conversation of its own. */
  events(branch?: string, options?: { signal?: AbortSignal }): AsyncGenerator<wire.Event, void, void>;

  /** Returns where a process outside all branches sees a file of a branch, for node:fs. */
  path(branch: string, ...parts: string[]): string;
  /** Starts a command in a branch by `agentfsd run`, in the mount point. */
  spawn(branch: string, command: string[], options?: CommandOptions & SpawnOptions): ChildProcess;
  /** Runs a command in a branch until it ends. */
  run(branch: string, command: string[], options?: RunOptions): Promise<CommandResult>;
}
