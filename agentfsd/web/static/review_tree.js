// The tree of changed files beside a review: directories that can be closed, each with the rest of its path if it holds only another one.

import { el, mark, plural } from "./dom.js";
import { amounts } from "./review_card.js";

export class ReviewTree {
  // counts(key): the added and removed lines of a file.
  constructor({ counts }) {
    Object.assign(this, { counts, closed: new Set(), rows: [] });
  }

  // Make the rows of some files, which are sorted by path.
  renew(files) {
    const root = { path: "", below: new Map(), files: [] };
    for (const file of files) {
      let at = root;
      const parts = file.change.path.split("/");
      for (const part of parts.slice(0, -1)) {
        const path = at.path ? `${at.path}/${part}` : part;
        if (!at.below.has(part)) at.below.set(part, { path, below: new Map(), files: [] });
        at = at.below.get(part);
      }
      at.files.push({ file, name: parts.at(-1) });
    }
    this.rows = [];
    this.put(root, 0);
  }

  put(directory, depth) {
    for (let [name, below] of directory.below) {
      while (!below.files.length && below.below.size === 1) {
        const [[part, only]] = below.below;
        [name, below] = [`${name}/${part}`, only];
      }
      const isOpen = !this.closed.has(below.path);
      this.rows.push({ directory: below, name, depth, isOpen });
      if (isOpen) this.put(below, depth + 1);
    }
    for (const { file, name } of directory.files) this.rows.push({ file, name, depth });
  }

  indexOf(file) {
    return this.rows.findIndex((row) => row.file === file);
  }

  draw(index) {
    const { file, directory, name, depth, isOpen } = this.rows[index];
    const indent = (made) => ((made.style.paddingLeft = `${8 + 12 * depth}px`), made.setAttribute("aria-level", depth + 1), made);
    const label = (...parts) => el("span", { class: "label", title: (file?.change ?? directory).path }, ...parts);
    if (directory) return indent(el("div", { "aria-expanded": String(isOpen) }, el("span", { class: "twist", "aria-hidden": "true" }, isOpen ? "▾" : "▸"), label(el("span", { class: "dir" }, name))));
    const { change, isViewed, chosen } = file;
    const was = change.was ? el("span", { class: "dir" }, `  ← ${change.was.slice(change.was.lastIndexOf("/") + 1)}`) : "";
    const extra = el("span", { class: "extra" }, isViewed ? el("span", { title: "viewed" }, "✓") : "", chosen.size ? el("span", { class: "picked-count", title: `${plural(chosen.size, "hunk")} chosen` }, "●") : "", ...amounts(...(this.counts(change.key) ?? [])));
    return indent(el("div", { class: `${change.status === "D" ? "gone" : ""} ${isViewed ? "seen" : ""}` }, mark(change.status), label(el("span", { class: "name" }, name), was), extra));
  }

  // Open or close a directory. Returns false for a file.
  turn(index, open = null) {
    const { directory, isOpen } = this.rows[index];
    if (!directory || isOpen === open) return false;
    if (isOpen) this.closed.add(directory.path);
    else this.closed.delete(directory.path);
    return true;
  }

  // Open what is above a file, so that it has a row.
  reveal(file) {
    for (const path of [...this.closed]) if (file.change.path.startsWith(`${path}/`)) this.closed.delete(path);
  }
}

// The order in which a tree with all directories open shows files.
export function inTreeOrder(files) {
  const tree = new ReviewTree({});
  tree.renew(files);
  return tree.rows.filter((row) => row.file).map((row) => row.file);
}
