// What tests/client/test_typescript.py runs: every operation of the TypeScript client against a real daemon.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";

import { AgentFS, AgentFSError, PROTOCOL_VERSION } from "agentfs-client";

const [mount, program, step] = process.argv.slice(2);
const agentfs = await AgentFS.connect({ mount });
const run = (branch, script, options = {}) => agentfs.run(branch, ["sh", "-c", script], { program, ...options });

const steps = {
  async operations() {
    assert.equal(agentfs.mount, mount);
    assert.deepEqual([agentfs.hello.version, agentfs.hello.bound], [PROTOCOL_VERSION, false]);
    const status = await agentfs.status();
    assert.deepEqual([status.mountpoint, status.branch, status.session.length > 0], [mount, "main", true]);
    assert.equal((await agentfs.createBranch("js")).name, "js");
    const before = await agentfs.snapshot("js", { name: "start" });
    const done = await run("js", "cat note.txt; echo changed > note.txt; echo new > ünïcode.txt; rm gone.txt; echo no >&2; exit 3");
    assert.deepEqual(done, { code: 3, signal: null, stdout: "real\n", stderr: "no\n", timedOut: false });
    const changes = Object.fromEntries((await agentfs.diff("js")).map((change) => [change.path, change.status]));
    assert.deepEqual(changes, { "note.txt": "M", "ünïcode.txt": "A", "gone.txt": "D" });
    assert.match(await agentfs.patch("js", { paths: ["note.txt"] }), /^-real\n\+changed$/m);
    assert.deepEqual((await agentfs.diff("js", { base: "start", paths: ["gone.txt"] })).length, 1);
    assert.equal((await agentfs.branches()).find((branch) => branch.name === "js").changed, 3);
    assert.equal(await readFile(agentfs.path("js", "note.txt"), "utf8"), "changed\n");
    assert.match(await agentfs.restore(before.id, { branch: "js" }), /./);
    assert.deepEqual(await agentfs.diff("js"), []);
    assert.equal((await agentfs.undo()).kind, "restore");
    assert.equal((await agentfs.diff("js")).length, 3);
    assert.ok((await agentfs.snapshots("js")).some((snapshot) => snapshot.name === "start"));
    assert.equal((await agentfs.merge(["js"], "main", { dry_run: true })).changed.length, 3);
    const told = [];
    const committed = await agentfs.commit("js", { paths: ["note.txt"], onProgress: (progress) => told.push(progress.what) });
    assert.deepEqual(committed.changed.map((change) => change.path), ["note.txt"]);
    assert.deepEqual(told.filter((what) => typeof what !== "string"), []);
    await agentfs.discard("js");
    await assert.rejects(agentfs.branch("js"), (error) => error instanceof AgentFSError && error.errno === 2 && error.hint.length > 0);
    assert.ok((await Promise.all([agentfs.status(), agentfs.ask("top", { seconds: 0.05 }), agentfs.branch()])).every(Boolean));
  },
  async events() {
    await agentfs.createBranch("watched");
    const seen = [];
    const watching = (async () => {
      for await (const event of agentfs.events("watched")) {
        seen.push([event.kind, event.path]);
        if (event.path === "end.txt") break;
      }
    })();
    for (let n = 0; !seen.length; n++) await writeFile(agentfs.path("watched", `${n}.txt`), "x"); // until the stream has begun
    await writeFile(agentfs.path("watched", "end.txt"), "x");
    await watching;
    assert.ok(seen.some(([kind]) => kind === "created"));
    const all = [];
    for await (const event of untilDiscarded("watched")) all.push(event.kind);
    assert.ok(all.length > 0);
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 200);
    for await (const _ of agentfs.events("main", { signal: stop.signal })) assert.fail("nothing happens in main");
    await assert.rejects(agentfs.events("nobody").next(), /no .*nobody/);
  },
  async binding() {
    await agentfs.createBranch("bound");
    const child = spawn("sh", ["-c", "read line; cat note.txt; echo bound > made.txt"], { cwd: mount, stdio: ["pipe", "pipe", "inherit"] });
    await agentfs.bind("bound", { pid: child.pid });
    await writeFile(agentfs.path("bound", "note.txt"), "of the branch\n");
    child.stdin.end("go\n");
    let said = "";
    for await (const part of child.stdout) said += part;
    assert.equal(said, "of the branch\n");
    assert.deepEqual((await agentfs.diff("bound")).map((change) => change.path).sort(), ["made.txt", "note.txt"]);
  },
  async ending() {
    await agentfs.createBranch("slow");
    const done = await run("slow", "echo begun; sleep 1000", { timeoutMs: 3000 });
    assert.deepEqual([done.code, done.signal, done.timedOut], [null, "SIGKILL", true]);
    const stop = new AbortController();
    setTimeout(() => stop.abort(new Error("enough")), 1000);
    await assert.rejects(run("slow", "sleep 1000", { signal: stop.signal }), /enough/);
    assert.equal((await run("slow", "tr a-z A-Z", { input: "heard\n" })).stdout, "HEARD\n");
    const long = new AbortController();
    setTimeout(() => long.abort(new Error("no more")), 100);
    await assert.rejects(agentfs.ask("top", { seconds: 60 }, { signal: long.signal }), /no more/);
    assert.equal((await agentfs.branch("slow")).name, "slow"); // in another conversation
    await assert.rejects(AgentFS.connect({ mount: "/" }), (error) => error.code === "no-mount");
    await assert.rejects(AgentFS.connect({ socket: "/nowhere/control.sock" }), (error) => error.code === "no-daemon");
    await assert.rejects(AgentFS.connect({ socket: `/${"x".repeat(120)}/control.sock` }));
    await assert.rejects(AgentFS.connect({}), TypeError);
  },
  async restart() {
    const before = await agentfs.status();
    console.log("ready");
    for await (const _ of process.stdin) break; // the daemon has been killed, and another one started
    const after = await agentfs.status();
    assert.notEqual(after.pid, before.pid);
    assert.equal((await agentfs.createBranch("later")).name, "later");
  },
  async inside() {
    assert.deepEqual([agentfs.hello.bound, agentfs.hello.branch], [true, "inside"]);
    await writeFile(`${mount}/note.txt`, "from inside\n");
    assert.deepEqual((await agentfs.diff()).map((change) => change.path), ["note.txt"]);
    const snapshot = await agentfs.snapshot();
    await writeFile(`${mount}/note.txt`, "again\n");
    await agentfs.restore(snapshot.id);
    assert.equal(await readFile(`${mount}/note.txt`, "utf8"), "from inside\n");
    await assert.rejects(agentfs.branch("main"), AgentFSError);
  },
};

async function* untilDiscarded(name) {
  const events = agentfs.events(name);
  const first = events.next();
  while ((await Promise.race([first.then(() => true), writeFile(agentfs.path(name, "more.txt"), "x").then(() => false)])) === false);
  yield (await first).value;
  await agentfs.discard(name);
  yield* events; // ends with the branch
}

try {
  await steps[step]();
} finally {
  agentfs.close();
}
console.log("done");
