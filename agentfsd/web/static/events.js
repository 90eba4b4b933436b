// Receives events from the server. It disconnects while the page is hidden, as a browser allows few connections to one server.

import { address } from "./dom.js";

const AGAIN = 1_000;

export function follow(branch, { happened, begun = () => {}, gone = () => {} }) {
  let source = null;
  const listen = () => {
    if (source || document.hidden) return;
    source = new EventSource(address("/api/events", { branch }));
    source.addEventListener("message", ({ data }) => {
      const event = JSON.parse(data);
      happened(event);
      document.dispatchEvent(new CustomEvent("branch-event", { detail: event })); // for other parts of the page
    });
    source.addEventListener("begun", begun);
    source.addEventListener("gone", (event) => {
      const { error, final } = JSON.parse(event.data);
      source.close();
      if (!final) setTimeout(() => ((source = null), listen()), AGAIN); // the next daemon may be there by then
      gone(error);
    });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) gone("The connection has ended. Load the page again.");
      else gone("Connecting again…");
    });
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      source?.close();
      source = null;
    } else {
      listen();
    }
  });
  window.addEventListener("pagehide", () => source?.close());
  listen();
}
