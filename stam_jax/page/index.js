(() => {
  "use strict";
  document.documentElement.classList.add("js");
  const rows = [...document.querySelectorAll("tbody tr")];
  const find = document.getElementById("find");
  if (!find) return;
  find.addEventListener("input", () => {
    const wanted = find.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.dataset.id.includes(wanted);
    document.getElementById("nothing").hidden = rows.some((row) => !row.hidden);
  });
})();
