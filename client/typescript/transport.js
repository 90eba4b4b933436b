// Carries messages to a daemon and back, over its Unix socket or the control file of its mount. It knows no operation.

import { constants as osConstants } from "node:os";
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { connect } from "node:net";
import { basename, dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const HEADER_BYTES = 4;
const MAX_REPLY_BYTES = 2 ** 30;
const LONGEST_ADDRESS = 107; // bytes of a Unix address
const READ_BYTES = 1 << 17;
const RETRY_MS = 20;

export class AgentFSError extends Error {
  constructor(message, { code, errno = 0, hint = "", cause } = {}) {
    super(hint ? `${message}; ${hint}` : message, cause === undefined ? undefined : { cause });
    this.name = "AgentFSError";
    this.code = code;
    this.errno = errno;
    this.hint = hint;
  }
}

export function daemonGone(message, cause) {
  return new AgentFSError(message, { code: "daemon-gone", errno: osConstants.errno.EPIPE, hint: "`agentfsd status` shows whether it is back", cause });
}

function encode(request) {
  const body = Buffer.from(JSON.stringify(request));
  const message = Buffer.allocUnsafe(HEADER_BYTES + body.length);
  message.writeUInt32LE(body.length);
  body.copy(message, HEADER_BYTES);
  return message;
}

/** A conversation over the socket. exchange() calls are answered one after the other. */
export class SocketTransport {
  #socket;
  #parts = [];
  #size = 0;
  #listener = null;
  #ended = null;

  /** Connects; while nobody listens it tries again for *patienceMs*, since a killed daemon is followed by another. */
  static async connect(path, patienceMs = 0) {
    const deadline = Date.now() + patienceMs;
    for (;;) {
      try {
        return new SocketTransport(await connected(path));
      } catch (error) {
        if (!["ECONNREFUSED", "ENOENT"].includes(error.code) || Date.now() > deadline) {
          throw new AgentFSError(`nobody answers at ${path}`, { code: "no-daemon", errno: -(error.errno ?? 0), hint: "`agentfsd mount` starts a daemon", cause: error });
        }
        await sleep(RETRY_MS);
      }
    }
  }

  constructor(socket) {
    this.#socket = socket;
    socket.on("data", (part) => this.#received(part));
    socket.on("error", (error) => this.#end(daemonGone("the connection to the daemon failed", error)));
    socket.on("close", () => this.#end(daemonGone("the daemon closed the connection")));
  }

  get hasEnded() {
    return this.#ended !== null;
  }

  /** Sends a request. *receive* gets every reply, and returns whether it was the last one. */
  exchange(request, receive) {
    if (this.#ended) return Promise.reject(this.#ended);
    return new Promise((resolve, reject) => {
      this.#listener = { receive, resolve, reject };
      this.#socket.write(encode(request));
    });
  }

  close() {
    this.#end(daemonGone("the conversation was closed"));
    this.#socket.destroy();
  }

  #end(error) {
    this.#ended ??= error;
    const listener = this.#listener;
    this.#listener = null;
    listener?.reject(this.#ended);
  }

  #received(part) {
    this.#parts.push(part);
    this.#size += part.length;
    for (let body = this.#body(); body !== null; body = this.#body()) {
      const listener = this.#listener;
      try {
        const last = listener?.receive(JSON.parse(body.toString()));
        if (last && this.#listener === listener) {
          this.#listener = null;
          listener.resolve();
        }
      } catch (error) {
        this.#end(error);
        this.#socket.destroy();
        return;
      }
    }
  }

  /** Takes the next whole message from what has been received; null if there is none. */
  #body() {
    if (this.#size < HEADER_BYTES) return null;
    if (this.#parts[0].length < HEADER_BYTES) this.#parts = [Buffer.concat(this.#parts)];
    const length = this.#parts[0].readUInt32LE();
    if (length > MAX_REPLY_BYTES) {
      this.#end(new AgentFSError(`the daemon announced a reply of ${length} bytes`, { code: "bad-frame" }));
      this.#socket.destroy();
      return null;
    }
    if (this.#size < HEADER_BYTES + length) return null;
    const all = this.#parts.length === 1 ? this.#parts[0] : Buffer.concat(this.#parts);
    const rest = all.subarray(HEADER_BYTES + length);
    this.#parts = rest.length ? [rest] : [];
    this.#size = rest.length;
    return all.subarray(HEADER_BYTES, HEADER_BYTES + length);
  }
}

/** The control file of a mount: where a run sees no state directory. Every request is a conversation of its own. */
export class FileTransport {
  hasEnded = false;

  constructor(path) {
    this.path = path;
  }

  async exchange(request, receive) {
    let file;
    try {
      file = await open(this.path, constants.O_RDWR);
    } catch (error) {
      throw new AgentFSError(`${this.path} cannot be opened`, { code: "no-mount", errno: -(error.errno ?? 0), hint: "is that directory an agentfsd mount, and yours?", cause: error });
    }
    try {
      const body = Buffer.from(JSON.stringify(request));
      await file.write(body, 0, body.length, null);
      const parts = [];
      for (;;) {
        const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(READ_BYTES), 0, READ_BYTES, null);
        if (bytesRead === 0) break;
        parts.push(buffer.subarray(0, bytesRead));
      }
      receive(JSON.parse(Buffer.concat(parts).toString()));
    } finally {
      await file.close();
    }
  }

  /** Each request opens the control file anew: there is nothing that ends. */
  close() {}
}

/** Connects to a path of any length: a long one is reached through a descriptor of its directory. */
async function connected(path) {
  if (Buffer.byteLength(path) <= LONGEST_ADDRESS) return connectedTo(path);
  const directory = await open(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    return await connectedTo(`/proc/self/fd/${directory.fd}/${basename(path)}`);
  } finally {
    await directory.close();
  }
}

function connectedTo(path) {
  return new Promise((resolve, reject) => {
    const socket = connect({ path });
    socket.once("error", reject);
    socket.once("connect", () => {
      socket.off("error", reject);
      resolve(socket);
    });
  });
}
