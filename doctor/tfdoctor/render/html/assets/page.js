"use strict";
// What every page has: commands that are copied, facts that are searched, and everything open on paper.
(() => {
  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      area.setAttribute("aria-hidden", "true");
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };

  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("button.copy") : null;
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    const done = await copied(code.textContent);
    button.focus();
    button.textContent = done ? "Copied" : "Select and copy it by hand";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  for (const button of document.querySelectorAll("button.copy")) button.hidden = false;

  const filter = document.getElementById("filter");
  if (filter) {
    const rows = [...document.querySelectorAll("#facts tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
    const count = document.getElementById("count");
    filter.parentElement.hidden = false;
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const [row, text] of rows) {
        row.hidden = !words.every((word) => text.includes(word));
        if (!row.hidden) shown += 1;
      }
      count.textContent = words.length ? `${shown} of ${rows.length}` : "";
    });
  }

  const opened = (target) => {
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
  };
  addEventListener("hashchange", () => opened(document.getElementById(location.hash.slice(1))));
  addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
})();
