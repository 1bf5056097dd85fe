// Keeps a page up to date. Everything else works without it.
"use strict";

(() => {
  const main = () => document.getElementById("main");
  const news = document.getElementById("news");
  let source = null;
  let loading = false;
  let again = false;
  let lost = 0;
  const PATIENCE = 3000; // milliseconds without a server until that is said
  const SETTLES = 500; // milliseconds in which a click may have been meant for what stood there before

  function tell(text) {
    document.getElementById("news-text").textContent = text;
    news.hidden = false;
  }

  // A second click, or one under which the page changed, decides nothing; the keyboard is not held up.
  function settle() {
    const settling = main();
    settling.classList.add("settling");
    setTimeout(() => settling.classList.remove("settling"), SETTLES);
  }

  // Somebody writes, has written, or is about to click: what they see must stay what they decide on.
  function busy() {
    const fields = [...main().querySelectorAll("textarea, input:not([type=hidden])")];
    const typed = fields.some((field) =>
      field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue);
    const at = document.activeElement;
    const inside = at !== null && at.closest("form") !== null && at.matches("textarea, input, button");
    const aims = main().querySelector("form:hover") !== null;
    return typed || inside || aims || !document.getSelection().isCollapsed;
  }

  async function refresh() {
    if (busy()) {
      tell("Something changed since you opened this page.");
      return;
    }
    if (loading) {
      again = true;
      return;
    }
    loading = true;
    try {
      do {
        again = false;
        const answer = await fetch(location.pathname + location.search, { headers: { accept: "text/html" } });
        if (!answer.ok) {
          tell("This page cannot be refreshed.");
          return;
        }
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      } while (again);
    } catch {
      tell("The server does not answer.");
    } finally {
      loading = false;
    }
  }

  function replace(page) {
    const fresh = page.getElementById("main");
    if (fresh === null || busy()) {
      tell("Something changed since you opened this page.");
      return;
    }
    const focused = document.activeElement && main().contains(document.activeElement) ? document.activeElement.id : "";
    const opened = [...main().querySelectorAll("details[open]")].map((box) => box.id);
    main().replaceWith(fresh);
    settle();
    document.title = page.title;
    for (const id of opened) {
      const box = document.getElementById(id);
      if (box !== null) box.open = true;
    }
    if (focused) (document.getElementById(focused) || main()).focus({ preventScroll: true });
    news.hidden = true;
  }

  function listen() {
    const { topic, version } = main().dataset;
    if (!topic || source !== null) return;
    source = new EventSource(`/live?of=${encodeURIComponent(topic)}&have=${encodeURIComponent(version)}`);
    source.addEventListener("changed", refresh);
    source.addEventListener("open", found);
    source.addEventListener("error", () => {
      if (source !== null && source.readyState === EventSource.CLOSED) tell("The server was restarted.");
      else if (lost === 0) lost = setTimeout(tell, PATIENCE, "The server does not answer. This page may be out of date.");
    });
  }

  function found() {
    if (lost === 0) return;
    clearTimeout(lost);
    lost = 0;
    news.hidden = true;
  }

  function leave() {
    if (source !== null) source.close();
    source = null;
    found();
  }

  // A page that nobody sees holds no connection: browsers have few of them for each server.
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
  addEventListener("pagehide", leave);
  settle();
  listen();
})();
