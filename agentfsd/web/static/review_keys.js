// The keys of the page that reviews a branch: a cursor on a hunk, which moves through all files, and what is done at it.

export class HunkCursor {
  // page: { files(), reveal(file), load(files), show(file), view(file), commit(), buildAll() }.
  constructor(page) {
    this.page = page;
    this.at = null;
    document.addEventListener("keydown", (event) => this.pressed(event));
  }

  point(hunk, isSeen = true) {
    this.at?.classList.remove("at");
    this.at = hunk;
    if (!hunk) return;
    hunk.classList.add("at");
    if (isSeen) hunk.scrollIntoView({ block: "start" });
    this.page.reveal(this.page.files()[this.here]);
  }

  get here() {
    return this.page.files().findIndex((file) => file.card === this.at?.closest(".file-card"));
  }

  // Go to the next or previous hunk, in the next file that is not folded if this one has no more.
  async leap(step) {
    this.page.buildAll();
    const files = this.page.files();
    const index = this.here;
    if (index >= 0 && this.at.isConnected && !files[index].isFolded) {
      const hunks = [...this.at.closest(".file-card").querySelectorAll(".hunk")];
      const to = hunks[hunks.indexOf(this.at) + step];
      if (to) return this.point(to);
    }
    for (let next = index < 0 ? 0 : index + step; next >= 0 && next < files.length; next += step) {
      const file = files[next];
      await this.page.load([file]);
      if (file.isFolded) continue;
      const hunks = [...file.card.querySelectorAll(".hunk")];
      if (hunks.length) return this.point(hunks.at(step > 0 ? 0 : -1));
    }
  }

  turn(step) {
    const index = this.here;
    const to = this.page.files()[index < 0 ? 0 : index + step];
    if (to) this.page.show(to);
  }

  pressed(event) {
    const isWriting = event.target.matches("input[type=search], select, textarea");
    if (event.defaultPrevented || isWriting || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const file = this.page.files()[this.here];
    if (event.key === "j" || event.key === "k") this.leap(event.key === "j" ? 1 : -1);
    else if (event.key === "n" || event.key === "p") this.turn(event.key === "n" ? 1 : -1);
    else if (event.key === "v" && file) {
      this.page.view(file);
      if (file.isViewed) this.leap(1);
    } else if (event.key === "x" && this.at?.querySelector("input.pick")) this.at.querySelector("input.pick").click();
    else if (event.key === "c") this.page.commit();
  }
}
