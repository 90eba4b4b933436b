// Which files of a branch a person has viewed, and in which version, so that a changed file is not viewed any more. `agentfsd ui` keeps it.

import { address, ask } from "./dom.js";

export class ViewedMarks {
  constructor(branch, csrf) {
    Object.assign(this, { branch, csrf, versions: {} }); // by key of a file
    this.sent = Promise.resolve();
  }

  // Read what is kept. Without an answer the page does without.
  async read() {
    await this.sent;
    this.versions = await ask(address("/api/viewed", { branch: this.branch })).catch(() => this.versions);
  }

  has(change) {
    return change.key in this.versions;
  }

  // True if the version that was viewed is the one that is shown.
  isOf(file) {
    return this.versions[file.change.key] === file.data.version;
  }

  keep(file) {
    const { key } = file.change;
    const version = file.isViewed && file.data ? file.data.version : "";
    if (version) this.versions[key] = version;
    else delete this.versions[key];
    const body = new URLSearchParams({ csrf: this.csrf, branch: this.branch, path: key, version });
    this.sent = this.sent.then(() => ask("/api/viewed", { method: "POST", body, keepalive: true })).catch(() => {}); // it stays on this page
  }
}
