(() => {
  "use strict";
  document.documentElement.classList.add("js");
  const panel = document.querySelector(".source");
  const words = document.querySelector(".stepper-words");
  const stops = [...document.querySelectorAll("[data-flag]")].sort((a, b) => a.dataset.flag - b.dataset.flag);
  let current = -1;
  document.querySelector(".stepper").hidden = false;

  const panelScrolls = () => /auto|scroll/.test(getComputedStyle(panel).overflowY);
  const barHeight = () => document.querySelector(".bar").getBoundingClientRect().height;

  // Bring an element into view: first inside the source panel where that scrolls by itself, then in the window.
  function reveal(element, alsoWindow) {
    const inPanel = panel.contains(element);
    if (inPanel && panelScrolls()) {
      const top = element.getBoundingClientRect().top - panel.getBoundingClientRect().top;
      panel.scrollTop += top - panel.clientHeight / 3;
    }
    const box = element.getBoundingClientRect();
    const seen = box.top >= barHeight() && box.bottom <= innerHeight;
    if (!seen && (alsoWindow || !inPanel)) {
      const tall = box.height > innerHeight * 0.7;
      element.scrollIntoView({ block: tall ? "start" : "center" });
    }
  }

  // Light up every segment of the quote or item that an anchor stands for; returns the first, or the anchor itself.
  function light(id) {
    document.querySelectorAll(".is-current").forEach((e) => e.classList.remove("is-current"));
    const anchor = document.getElementById(id);
    const parts = [...document.querySelectorAll("[data-keys]")].filter((e) => e.dataset.keys.split(" ").includes(id));
    (parts.length ? parts : [anchor]).forEach((e) => e && e.classList.add("is-current"));
    return parts[0] || anchor;
  }

  function show(id) {
    const target = light(id);
    if (!target) return;
    reveal(target, true);
    target.setAttribute("tabindex", "-1");
    target.focus({ preventScroll: true });
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const id = link.getAttribute("href").slice(1);
    if (!document.getElementById(id)) return;
    event.preventDefault();
    if (location.hash !== "#" + id) history.pushState(null, "", "#" + id);
    const stop = stops.findIndex((e) => e.id === id);
    if (stop >= 0) go(stop);
    else show(id);
  });
  addEventListener("popstate", () => location.hash && show(location.hash.slice(1)));
  if (location.hash.length > 1) requestAnimationFrame(() => show(location.hash.slice(1)));

  function go(index) {
    if (!stops.length) return;
    current = (index + stops.length) % stops.length;
    const stop = stops[current];
    const source = stop.dataset.source && document.getElementById(stop.dataset.source);
    const lit = source ? light(source.id) : null;
    if (lit) reveal(lit, false);
    stops.forEach((e) => e.classList.toggle("is-stop", e === stop));
    reveal(stop, true);
    stop.focus({ preventScroll: true });
    words.textContent = `flag ${current + 1} of ${stops.length}`;
  }
  document.querySelectorAll("[data-step]").forEach((b) => b.addEventListener("click", () => step(Number(b.dataset.step))));
  function step(by) {
    go(current < 0 ? (by > 0 ? 0 : stops.length - 1) : current + by);
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    if (event.target.tagName === "INPUT" && event.target.type !== "checkbox") return;
    if (event.key === "n") step(1);
    else if (event.key === "p") step(-1);
  });
})();
