(() => {
  "use strict";
  document.documentElement.classList.add("js");
  const table = document.querySelector("table.patients");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const count = document.querySelector(".search .matches");

  table.querySelectorAll("th[data-sort]").forEach((head) => {
    const button = head.querySelector("button");
    button.addEventListener("click", () => {
      const column = head.cellIndex;
      const numeric = head.dataset.sort === "number";
      const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") !== "descending" : numeric;
      table.querySelectorAll("th[aria-sort]").forEach((h) => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value;
      const order = (a, b) => (numeric ? value(a) - value(b) : value(a).localeCompare(value(b), undefined, { numeric: true }));
      rows.sort((a, b) => (down ? order(b, a) : order(a, b)));
      body.append(...rows);
    });
  });

  const search = document.querySelector(".search");
  search.hidden = false;
  search.querySelector("input").addEventListener("input", (event) => {
    const asked = event.target.value.trim().toLowerCase();
    let found = 0;
    for (const row of rows) {
      row.hidden = asked !== "" && !row.dataset.search.toLowerCase().includes(asked);
      found += row.hidden ? 0 : 1;
    }
    count.textContent = asked === "" ? "" : `${found} of ${rows.length} patients`;
  });
})();
