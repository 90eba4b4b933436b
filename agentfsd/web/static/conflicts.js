// The conflicts that a merge has left in the branch of this page: which there are, what was decided, and the end of the merge.

import { ConflictCard } from "./conflict_card.js";
import { address, ask, plural, refusal } from "./dom.js";
import { confirmed } from "./review_acts.js";

const section = document.getElementById("conflicts");
const box = document.getElementById("conflict-list");
const state = document.getElementById("conflicts-state");
const finish = document.getElementById("finish");
const { branch, name, writable } = document.getElementById("review").dataset;
const cards = new Map(); // by key of a path
let merge = 0; // the number of the merge that is shown
let busy = false;
let isMore = false;

const form = (more) => new URLSearchParams({ ...Object.fromEntries(new FormData(document.getElementById("acts"))), merge, ...more });

const page = {
  branch,
  name,
  isWritable: writable !== undefined,
  ask: (path, parameters) => ask(address(path, { branch, ...parameters })),
  async decide(more) {
    show(await ask("/api/conflicts/decide", { method: "POST", body: form(more) }));
    document.dispatchEvent(new Event("decided"));
    const next = [...cards.values()].find((each) => !each.conflict.decided)?.fold ?? finish; // the button that was pressed has gone
    next.focus();
  },
};

// Show the list that the server sent; cards that are there stay, with what was chosen in them.
function show(said) {
  const isOpen = said.state === "unfinished";
  const wasHidden = section.hidden;
  section.hidden = !isOpen;
  document.body.classList.toggle("merging", isOpen);
  document.dispatchEvent(new Event("merge-state"));
  if (!isOpen) return;
  document.getElementById("conflicts-title").textContent = `The merge of ${said.sources.join(", ")} into ${said.branch} is not finished`;
  state.textContent = `${said.said}${said.undecided ? ` of ${said.conflicts.length.toLocaleString("en")}` : ""}.`;
  if (finish) finish.disabled = said.undecided > 0;
  if (said.merge !== merge) {
    for (const card of cards.values()) card.box.remove();
    cards.clear();
    merge = said.merge;
  }
  const shown = new Set(said.conflicts.map((each) => each.key));
  for (const [key, card] of cards) {
    if (shown.has(key)) continue;
    card.box.remove();
    cards.delete(key);
  }
  for (const [index, conflict] of said.conflicts.entries()) {
    if (cards.has(conflict.key)) cards.get(conflict.key).renew(conflict);
    else cards.set(conflict.key, new ConflictCard(conflict, page, merge));
    const card = cards.get(conflict.key).box;
    if (box.children[index] !== card) box.insertBefore(card, box.children[index] ?? null);
  }
  if (wasHidden && location.hash === "#conflicts") section.scrollIntoView();
}

async function look() {
  isMore = busy;
  if (busy) return;
  busy = true;
  try {
    show(await ask(address("/api/conflicts", { branch })));
  } catch (error) {
    if (!section.hidden) state.replaceChildren(refusal(error));
  }
  busy = false;
  if (isMore) await look(); // something happened meanwhile
}

async function end(more) {
  try {
    const said = await ask("/api/conflicts/end", { method: "POST", body: form(more) });
    if (said.state === "finished" || said.state === "aborted") return location.replace(address("/review", { branch: name }));
    if (said.changed.length) {
      const named = said.changed.slice(0, 5).join(", ") + (said.changed.length > 5 ? ` and ${plural(said.changed.length - 5, "other")}` : "");
      const isSure = await confirmed({ title: "Give up other changes, too?", said: [`These files were changed since the merge: ${named}.`, "Taking the merge back loses these changes. Undo brings them back."], verb: "Take it back all the same", danger: true });
      return isSure && end({ ...more, force: "1" });
    }
    show(said);
    await look();
  } catch (error) {
    state.replaceChildren(refusal(error));
  }
}

finish?.addEventListener("click", () => end({}));
document.getElementById("take-merge-back")?.addEventListener("click", async () => {
  const isSure = await confirmed({ title: "Take the merge back?", said: [`${name} gets back the state before the merge, and what was decided is given up.`, "Undo brings it back."], verb: "Take the merge back", danger: true });
  if (isSure) end({ abort: "1" });
});

let due = null;
document.addEventListener("branch-event", ({ detail }) => {
  if (section.hidden && !["merge", "undo", "restore"].includes(detail.kind)) return;
  cards.get(detail.key)?.moved();
  due ??= setTimeout(() => {
    due = null;
    look();
  }, 300);
});
look();
