// Draws one changed file, side by side or in one column. Unchanged lines in between are shown on demand.

import { codeInto, el, plural } from "./dom.js";

const CONTEXT = 3; // unchanged lines around a change that the server sends

// layout: { unified, blanks }; blanks hides lines that differ only in blanks. whole() returns a promise of the whole file's rows.
// headOf(index) makes what stands at the left of a hunk's heading, and each hunk then has a heading.
export function drawn(diff, layout, whole, headOf = null) {
  const { hunks, left } = layout.blanks ? withoutBlanks(diff.hunks) : { hunks: diff.hunks, left: 0 };
  const made = [];
  if (left) made.push(el("p", { class: "note" }, hunks.length ? `${plural(left, "line")} not marked: only their blanks differ.` : "Only blanks differ."));
  if (!hunks.length) return made;
  const line = layout.unified ? unifiedRows : sideRows;
  const wide = layout.unified ? 3 : 4;
  const body = el("tbody");
  let after = 1; // number of the next line on the new side
  const canGrow = !"AD".includes(diff.status);
  for (const [index, hunk] of hunks.entries()) {
    const first = hunk.rows.find((row) => row.new)?.new;
    const hidden = first && canGrow ? first - after : 0;
    if (hidden > 0 || index || headOf) body.append(gap(hunk.head, hidden, wide, after, first, line, whole, headOf?.(index)));
    body.append(...line(hunk.rows));
    after = (hunk.rows.findLast((row) => row.new)?.new ?? after - 1) + 1;
  }
  const end = hunks[hunks.length - 1].rows.slice(-CONTEXT);
  if (canGrow && end.length === CONTEXT && end.every((row) => row.same)) body.append(gap("", -1, wide, after, Infinity, line, whole));
  const head = el("thead", { class: "hidden" }, el("tr", {}, ...(layout.unified ? ["Line before", "Line after", "Text"] : ["Line", "Before", "Line", "After"]).map((word) => el("th", {}, word))));
  made.push(el("table", { class: layout.unified ? "diff unified" : "diff" }, columns(layout.unified ? "nnt" : "ntnt"), head, body));
  return made;
}

// Columns of numbers are narrow; columns of text share the rest.
function columns(kinds) {
  return el("colgroup", {}, ...[...kinds].map((kind) => el("col", { class: kind })));
}

function number(value, kind, two = "") {
  return el("td", { class: `num ${kind} ${two}` }, value ? String(value) : "");
}

function text(parts, kind) {
  return parts ? codeInto(el("td", { class: `text ${kind}` }), parts) : el("td", { class: "text none" });
}

// The row between two hunks. count: the lines that it hides; 0: none; -1: unknown, after the last hunk.
function gap(head, count, wide, from, to, line, whole, extra = "") {
  const row = el("tr", { class: "hunk" });
  const cell = el("td", { colspan: wide });
  const words = count > 0 ? `⋯ ${plural(count, "unchanged line")}` : "⋯ what follows";
  const grow = async () => {
    try {
      const found = (await whole()).filter((each) => each.same && each.new >= from && each.new < to);
      if (count > 0 && found.length < count) cell.append(el("span", {}, " The file is too long for that; its link above shows all of it."));
      else if (extra) {
        row.before(...line(found));
        cell.querySelector(".grow").remove(); // the heading itself stays
      } else row.replaceWith(...line(found));
    } catch (error) {
      cell.append(` ${error.message}`);
    }
  };
  if (extra) cell.append(extra);
  cell.append(count ? el("button", { type: "button", class: "grow", onclick: grow, title: "Show them" }, words) : extra ? "" : "⋯", head ? ` ${head}` : "");
  row.append(cell);
  return row;
}

function begun(rows, index) {
  return !rows[index].same && (index === 0 || rows[index - 1].same) ? "change" : "";
}

function sideRows(rows) {
  return rows.map((row, index) => {
    const was = row.same || !row.was ? "" : "was";
    const now = row.same || !row.now ? "" : "now";
    return el("tr", { class: begun(rows, index) }, number(row.old, row.was ? was : "none"), text(row.was, was), number(row.new, row.now ? now : "none"), text(row.now, now));
  });
}

function unifiedRows(rows) {
  const made = [];
  const line = (row, side, kind, first) => el("tr", { class: first }, number(side === "now" && kind ? 0 : row.old, kind, "two"), number(side === "was" && kind ? 0 : row.new, kind, "two"), text(row[side], kind));
  let changed = [];
  const flush = () => {
    const lines = [...changed.filter((row) => row.was).map((row) => [row, "was"]), ...changed.filter((row) => row.now).map((row) => [row, "now"])];
    lines.forEach(([row, side], index) => made.push(line(row, side, side, index ? "" : "change")));
    changed = [];
  };
  for (const row of rows) {
    if (!row.same) {
      changed.push(row);
      continue;
    }
    flush();
    made.push(line(row, "now", "", ""));
  }
  flush();
  return made;
}

const bare = (parts) => parts.map(([, text]) => text).join("").replace(/\s+/g, "");
const unmarked = (parts) => parts.map(([colour, text]) => [colour.replace("*", ""), text]);

function withoutBlanks(hunks) {
  let left = 0;
  const same = (row) => {
    if (row.same || !row.was || !row.now || bare(row.was) !== bare(row.now)) return row;
    left++;
    return { ...row, was: unmarked(row.was), now: unmarked(row.now), same: true };
  };
  const made = hunks.map((hunk) => ({ ...hunk, rows: hunk.rows.map(same) })).filter((hunk) => hunk.rows.some((row) => !row.same));
  return { hunks: made, left };
}
