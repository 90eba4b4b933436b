// Which files of a branch a person has viewed, and in which version: kept by the browser, so a changed file is not viewed any more.

export class ViewedMarks {
  constructor(branch) {
    this.place = `viewed ${branch}`; // of a branch's id, which no other branch gets
    this.versions = JSON.parse(localStorage.getItem(this.place) ?? "{}"); // by key of a file
  }

  has(change) {
    return change.key in this.versions;
  }

  // True if the version that was viewed is the one that is shown.
  isOf(file) {
    return this.versions[file.change.key] === file.data.version;
  }

  keep(file) {
    if (file.isViewed && file.data) this.versions[file.change.key] = file.data.version;
    else delete this.versions[file.change.key];
    localStorage.setItem(this.place, JSON.stringify(this.versions));
  }
}
