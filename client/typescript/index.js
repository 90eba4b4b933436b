// The client of agentfsd for Node: a conversation with the daemon of one mount, and commands in its branches.

import { spawn } from "node:child_process";
import { join, resolve } from "node:path";

import { AgentFSError, daemonGone, FileTransport, SocketTransport } from "./transport.js";
import { PROTOCOL_VERSION, REPEATABLE } from "./wire.js";

export { AgentFSError } from "./transport.js";
export { PROTOCOL_VERSION } from "./wire.js";

const RESTARTING_MS = 20_000; // how long to wait for the daemon that follows one that was killed
const LAST_BYTES = 1 << 26; // most output that run() keeps

export class AgentFS {
  #transport;
  #socket;
  #turn = Promise.resolve();
  #closed = false;

  constructor(transport, socket, mount, hello) {
    this.#transport = transport;
    this.#socket = socket;
    this.mount = mount;
    this.hello = hello;
  }

  static async connect({ mount, socket } = {}) {
    if ((mount === undefined) === (socket === undefined)) throw new TypeError("give mount or socket: one of them");
    if (socket !== undefined) return AgentFS.#over(resolve(socket));
    const control = new FileTransport(join(resolve(mount), ".agentfs", "control"));
    const status = await answer(control, { op: "status" });
    try {
      return await AgentFS.#over(join(status.state, "control.sock"), status.mountpoint);
    } catch (error) {
      if (error.code !== "no-daemon") throw error; // in a run, which sees no state directories
      return new AgentFS(control, null, status.mountpoint, { op: "hello.ok", version: PROTOCOL_VERSION, daemon: status.daemon, branch: status.branch, bound: status.bound });
    }
  }

  static async #over(socket, mount) {
    const { transport, hello } = await greeted(socket, 0);
    try {
      return new AgentFS(transport, socket, mount ?? (await answer(transport, { op: "status" })).mountpoint, hello);
    } catch (error) {
      transport.close();
      throw error;
    }
  }

  ask(op, fields = {}, { onProgress, signal } = {}) {
    const request = { op, version: PROTOCOL_VERSION, ...fields, ...(onProgress ? { progress: true } : {}) };
    const asked = this.#turn.then(() => this.#ask(request, onProgress, signal));
    this.#turn = asked.catch(() => {});
    return asked;
  }

  async #ask(request, onProgress, signal) {
    signal?.throwIfAborted();
    if (this.#closed) throw daemonGone("the conversation was closed");
    if (this.#transport.hasEnded) await this.#reconnect();
    const abandon = () => this.#transport.close(); // the daemon gives a long request up when its client is gone
    signal?.addEventListener("abort", abandon, { once: true });
    try {
      return await answer(this.#transport, request, onProgress);
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (error.code !== "daemon-gone" || this.#closed || !REPEATABLE.has(request.op)) throw error;
      await this.#reconnect();
      return await answer(this.#transport, request, onProgress);
    } finally {
      signal?.removeEventListener("abort", abandon);
    }
  }

  async #reconnect() {
    this.#transport = (await greeted(this.#socket, RESTARTING_MS)).transport;
  }

  close() {
    this.#closed = true;
    this.#transport.close();
  }

  // -- branches

  async branches() {
    return (await this.ask("branch.list")).branches;
  }

  async branch(ref) {
    return (await this.ask("branch.show", { ref: ref ?? null })).branch;
  }

  async createBranch(name, { source = null, temporary = false } = {}) {
    return (await this.ask("branch.create", { name, source, temporary })).branch;
  }

  async discard(ref, { keep = true } = {}) {
    await this.ask("discard", { ref, keep });
  }

  async bind(branch, { pid = process.pid, descendants = false } = {}) {
    await this.ask("branch.bind", { pid, branch, brood: descendants });
  }

  // -- snapshots

  async snapshot(branch, { name = null, tag = "", keep = false } = {}) {
    return (await this.ask("snapshot.create", { branch: branch ?? null, name, tag, keep })).snapshot;
  }

  async snapshots(branch) {
    return (await this.ask("snapshot.list", { branch: branch ?? null })).snapshots;
  }

  async restore(ref, { branch = null, paths = [], ...options } = {}) {
    return (await this.ask("restore", { ref, branch, paths }, options)).message;
  }

  async undo() {
    return (await this.ask("undo")).deeds[0];
  }

  // -- differences, merges, commits

  async diff(branch, { base = null, paths = [], own = false, internal = true } = {}) {
    return (await this.ask("diff", { a: base, b: branch ?? null, paths, own, internal })).changes;
  }

  async patch(branch, { base = null, paths = [], own = false, internal = false, ...options } = {}) {
    const reply = await this.ask("diff.patch", { a: base, b: branch ?? null, paths, own, internal }, options);
    return Buffer.concat(reply.patches.map((file) => Buffer.from(file.patch, "base64"))).toString();
  }

  merge(sources, target, { onProgress, signal, ...fields } = {}) {
    return this.ask("merge", { ...fields, sources, target: target ?? null }, { onProgress, signal });
  }

  commit(branch, { onProgress, signal, ...fields } = {}) {
    return this.ask("commit", { ...fields, branch: branch ?? null }, { onProgress, signal });
  }

  // -- the daemon

  status() {
    return this.ask("status");
  }

  async *events(branch, { signal } = {}) {
    signal?.throwIfAborted();
    if (this.#socket === null) throw new AgentFSError("events come over the daemon's socket, which a run does not see", { code: "no-socket" });
    const { transport } = await greeted(this.#socket, 0);
    const queue = [];
    let wake = () => {};
    let ended = null;
    const close = () => transport.close();
    const began = new Promise((begin, fail) => {
      transport
        .exchange({ op: "events", version: PROTOCOL_VERSION, branch: branch ?? null }, (reply) => {
          if (reply.op === "error") throw refusal(reply);
          if (reply.op === "events.ok") begin();
          else if (reply.op === "event") queue.push(reply);
          wake();
          return reply.op === "done";
        })
        .then(() => (ended = { error: null }), (error) => (fail(error), (ended = { error })))
        .finally(() => wake());
    });
    signal?.addEventListener("abort", close, { once: true });
    try {
      await began;
      for (;;) {
        while (queue.length) yield queue.shift();
        if (signal?.aborted) return;
        if (ended?.error) throw ended.error;
        if (ended) return;
        await new Promise((next) => (wake = next));
      }
    } finally {
      signal?.removeEventListener("abort", close);
      close();
    }
  }

  // -- files and commands in a branch

  path(branch, ...parts) {
    return join(this.mount, ".agentfs", "branches", branch, ...parts);
  }

  spawn(branch, command, { program = "agentfsd", runOptions = [], ...options } = {}) {
    return spawn(program, ["run", "-m", this.mount, "-b", branch, ...runOptions, "--", ...command], { cwd: this.mount, ...options });
  }

  async run(branch, command, { timeoutMs, signal, input, ...options } = {}) {
    const child = this.spawn(branch, command, { ...options, detached: true, stdio: ["pipe", "pipe", "pipe"] });
    let timedOut = false;
    const kill = () => {
      try {
        process.kill(-child.pid, "SIGKILL"); // what it started, too
      } catch (error) {
        if (error.code !== "ESRCH") throw error;
      }
    };
    const timer = timeoutMs === undefined ? undefined : setTimeout(() => ((timedOut = true), kill()), timeoutMs);
    signal?.addEventListener("abort", kill, { once: true });
    try {
      const output = [collected(child.stdout), collected(child.stderr)];
      child.stdin.on("error", () => {}); // the command did not read all of it
      child.stdin.end(input);
      const [code, killedBy] = await new Promise((done, fail) => {
        child.once("error", fail);
        child.once("close", (...how) => done(how));
      });
      signal?.throwIfAborted();
      const [stdout, stderr] = await Promise.all(output);
      return { code, signal: killedBy, stdout, stderr, timedOut };
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", kill);
    }
  }
}

async function greeted(socket, patienceMs) {
  const transport = await SocketTransport.connect(socket, patienceMs);
  try {
    return { transport, hello: await answer(transport, { op: "hello", version: PROTOCOL_VERSION, client: "agentfs-client" }) };
  } catch (error) {
    transport.close();
    throw error;
  }
}

/** Sends one request and returns its reply. */
async function answer(transport, request, onProgress) {
  let reply = null;
  await transport.exchange(request, (message) => {
    if (message.op === "progress") {
      onProgress?.(message);
      return false;
    }
    reply = message;
    return true;
  });
  if (reply.op === "error") throw refusal(reply);
  return reply;
}

function refusal({ message, code, errno, hint }) {
  return new AgentFSError(message, { code, errno, hint });
}

async function collected(stream) {
  const parts = [];
  let size = 0;
  for await (const part of stream) {
    if (size < LAST_BYTES) parts.push(part);
    size += part.length;
  }
  return Buffer.concat(parts).toString();
}
