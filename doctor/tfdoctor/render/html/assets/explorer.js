"use strict";
// Looks up what the planner said; nothing is decided here. The choice stands in the address, after the #.
(() => {
  const table = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const FIELDS = ["os", "gpu", "driver", "python", "tf"];
  const [NAME, QUOTED, CAPABILITY, DRIVER, GLIBC] = table.places;
  const LINUX = table.systems[0][0];
  const OLDEST_DRIVER = 100; // versions of CUDA lie below
  const WAYS = {
    "venv": "in a virtual environment", "pip-cuda": "in an image, CUDA from NVIDIA's wheels",
    "cuda-base": "in an image of nvidia/cuda", "official": "in TensorFlow's own image",
    "conda-cuda": "in an image, CUDA from conda-forge", "ngc": "in NVIDIA's image",
  };
  const capabilityOf = new Map();
  const named = new Map();
  table.cards.forEach(([capability, names], place) => {
    for (const name of names) {
      capabilityOf.set(name, place + 1);
      named.set(name.toLowerCase(), name);
    }
  });
  const rowAt = (number) => {
    const row = [];
    for (const run of table.rows[number].split(" ")) {
      const [value, times] = run.split(".");
      row.push(...Array(times ? parseInt(times, 36) : 1).fill(parseInt(value, 36)));
    }
    return row;
  };

  const element = (tag, values = {}, ...inside) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(values)) {
      if (name === "class") made.className = value;
      else if (name in made && typeof value !== "string") made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...inside);
    return made;
  };
  const mark = (status) =>
    element("span", { class: `mark ${status}`, "aria-hidden": "true" }, { good: "✓", warning: "!", bad: "✗" }[status]);
  const word = (status) => element("span", { class: "sr" }, { good: "works", warning: "works with a limit", bad: "does not work" }[status]);

  // ---------------------------------------------------------------- the choice

  const shortest = (name) => name.toLowerCase().replace(/^nvidia /, "").replace(/^geforce /, "");
  const short = new Map();
  for (const name of capabilityOf.keys()) if (!short.has(shortest(name))) short.set(shortest(name), name);
  const cardOf = (text) => {
    const asked = text.trim().toLowerCase().replace(/\s+/g, " ");
    return named.get(asked) ?? short.get(shortest(asked)) ?? "";
  };
  const driverOf = (text) => {
    const asked = text.trim();
    return /^[0-9]{1,4}(\.[0-9]{1,4}){0,3}$/.test(asked) && parseInt(asked, 10) >= OLDEST_DRIVER ? asked : "";
  };
  const known = {
    gpu: cardOf,
    os: (text) => (text !== LINUX && table.systems.some(([word]) => word === text) ? text : ""),
    driver: (text) => driverOf(text),
    python: (text) => (table.pythons.includes(text) ? text : ""),
    tf: (text) => (table.minors.includes(text) ? text : ""),
  };
  const fromAddress = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    return Object.fromEntries(FIELDS.map((field) => [field, known[field](given.get(field) ?? "")]));
  };
  const address = (choice) => {
    const given = new URLSearchParams();
    for (const field of FIELDS) if (choice[field]) given.set(field, choice[field]);
    return `#${given}`;
  };

  // ---------------------------------------------------------------- looking up

  const systemOf = (choice) => Math.max(0, table.systems.findIndex(([word]) => word === choice.os));
  const numbers = (version) => version.split(".").map(Number);
  const older = (one, other) => {
    const [a, b] = [numbers(one), numbers(other)];
    for (let at = 0; at < Math.max(a.length, b.length); at += 1) if ((a[at] ?? 0) !== (b[at] ?? 0)) return (a[at] ?? 0) < (b[at] ?? 0);
    return false;
  };
  // Where a driver's answer stands in a row: before all steps, at each step, not known.
  const placeOf = (driver, [steps]) => {
    if (!driver) return steps.length + 1;
    const plain = numbers(driver).join(".").replace(/(\.0)+$/, "");
    const branch = steps.indexOf(`${plain}.*`);
    return 1 + (branch >= 0 ? branch : steps.findLastIndex((step) => !step.endsWith("*") && !older(driver, step)));
  };
  const answer = (choice) => {
    const system = systemOf(choice);
    const ofMinor = table.blocks[table.cells[system][choice.tf ? table.minors.indexOf(choice.tf) + 1 : 0]];
    const ofPython = ofMinor[choice.python ? table.pythons.indexOf(choice.python) + 1 : 0];
    const row = rowAt(Array.isArray(ofPython) ? ofPython[capabilityOf.get(choice.gpu) ?? 0] : ofPython);
    const place = placeOf(choice.driver, table.drivers[table.systems[system][2]]);
    const [options, reasons, noEnvironment] = table.answers[row[Math.min(place, row.length - 1)]];
    const said = (number) => put(table.texts[number], choice);
    return {
      options: options.map((number) => {
        const [recipe, tensorflow, python, cuda, cudnn, image, bytes, commands, serious, others] = table.options[number];
        return {
          recipe: table.recipes[recipe], tensorflow, python, cuda, cudnn, image: table.texts[image], bytes,
          commands: commands.map(said), serious: serious.map(said), others: others.map(said),
        };
      }),
      reasons: reasons.map(said),
      noEnvironment: noEnvironment < 0 ? "" : said(noEnvironment),
    };
  };
  const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);
  const put = (text, choice) => {
    const place = capabilityOf.get(choice.gpu);
    return text.replaceAll(NAME, choice.gpu).replaceAll(QUOTED, quoted(choice.gpu))
      .replaceAll(CAPABILITY, place ? table.cards[place - 1][0] : "").replaceAll(DRIVER, choice.driver)
      .replaceAll(GLIBC, table.systems[systemOf(choice)][3]);
  };
  const statusOf = (found) => (!found.options.length ? "bad" : found.options[0].serious.length ? "warning" : "good");
  const size = (bytes) => (bytes < 0 ? "" : bytes >= 1e9 ? `, about ${(bytes / 1e9).toFixed(1)} GB` : `, about ${Math.round(bytes / 1e6)} MB`);

  // ---------------------------------------------------------------- showing

  const command = (lines) =>
    element("div", { class: "command" },
      element("pre", { tabindex: "0", "aria-label": "Command" }, element("code", { dir: "ltr" }, lines.join("\n"))),
      element("button", { type: "button", class: "copy" }, "Copy"));

  const shownOption = (option, number) => {
    const status = option.serious.length ? "warning" : "good";
    const title = `${number ? "Or " : ""}TensorFlow ${option.tensorflow} on Python ${option.python} ${WAYS[option.recipe] ?? ""}`;
    return element("article", { class: `finding ${status}`, "data-recipe": option.recipe },
      element("h3", {}, mark(status), " ", title),
      element("p", { class: "small" }, `CUDA ${option.cuda}${option.cudnn ? `, cuDNN ${option.cudnn}` : ""}${size(option.bytes)}${option.image ? `; ${option.image}` : ""}`),
      command(option.commands),
      ...option.serious.map((text) => element("p", {}, element("b", {}, "But "), text)),
      ...(option.others.length
        ? [element("details", {}, element("summary", {}, `Worth knowing (${option.others.length})`), ...option.others.map((text) => element("p", {}, text)))]
        : []));
  };

  const shownAnswer = (choice, found) => {
    const status = statusOf(found);
    const what = choice.tf ? `TensorFlow ${choice.tf}` : "TensorFlow";
    const first = found.options[0];
    const title = first ? `${what}: ${first.tensorflow} ${status === "good" ? "works" : "works with a limit"}` : `No installation of ${choice.tf ? what : "a TensorFlow"} meets this request.`;
    const inside = [element("h2", {}, mark(status), " ", title)];
    if (!first) inside.push(element("ul", { class: "why" }, ...found.reasons.map((text) => element("li", {}, text))));
    if (!first && choice.tf) inside.push(element("p", {}, element("a", { href: address({ ...choice, tf: "" }) }, "The best TensorFlow for this choice of card, driver and Python")));
    if (found.noEnvironment) inside.push(element("p", {}, element("b", {}, "Not in a virtual environment: "), found.noEnvironment));
    const [best, ...others] = found.options.map(shownOption);
    if (best) inside.push(best);
    if (others.length) inside.push(element("details", {}, element("summary", {}, `Other ways (${others.length})`), ...others));
    return element("div", { class: `verdict ${status}` }, ...inside);
  };

  const shownRelease = (choice, found) => {
    const version = found.options[0]?.tensorflow;
    const release = table.releases.find((one) => one[0] === version) ?? table.releases.find((one) => one[1] === choice.tf);
    if (!release) return [];
    const [name, , released, needs, problems] = release;
    const others = table.releases.filter((one) => one[1] === release[1]).map((one) => one[0]);
    return [element("details", choice.tf ? { open: true } : {},
      element("summary", {}, `TensorFlow ${name}: what it needs, and what is known to be wrong with it`),
      element("p", { class: "small" }, `Released ${released || "at an unknown date"}. Releases of ${release[1]}: ${others.join(", ")}.`),
      element("table", { class: "needs" }, element("tbody", {}, ...needs.map(([what, how]) =>
        element("tr", {}, element("th", { scope: "row" }, table.texts[what]), element("td", {}, table.texts[how]))))),
      ...(problems.length ? [element("h3", {}, "Known problems")] : []),
      ...problems.map(([code, title, when, remedy]) =>
        element("p", {}, element("span", { class: "code" }, code), ` ${table.texts[title]}${table.texts[when] ? ` (${table.texts[when]})` : ""}. ${table.texts[remedy]}`)))];
  };

  const shownRow = (choice, minor) => {
    const mine = { ...choice, tf: minor };
    const found = answer(mine);
    const status = statusOf(found);
    const first = found.options[0];
    const why = first ? first.serious[0] ?? (found.noEnvironment ? `not in a virtual environment: ${found.noEnvironment}` : "") : found.reasons[0] ?? "";
    const link = element("a", { href: address(mine) }, minor);
    if (minor === choice.tf) link.setAttribute("aria-current", "true");
    const cells = first
      ? [first.recipe === "venv" ? "virtual environment" : "image", first.python, first.cuda, first.cudnn]
      : ["–", "–", "–", "–"];
    return element("tr", { class: status, "data-minor": minor },
      element("th", { scope: "row" }, mark(status), " ", link, " ", word(status)),
      ...cells.map((text) => element("td", {}, text)), element("td", {}, why));
  };

  const show = () => {
    const choice = fromAddress();
    for (const field of FIELDS) {
      const input = $(field);
      const typed = input === document.activeElement && input.value.trim() && ["gpu", "driver"].includes(field) && known[field](input.value) === choice[field];
      if (!typed) input.value = field === "os" ? choice.os || LINUX : choice[field];
    }
    offered(choice);
    const place = capabilityOf.get(choice.gpu);
    $("gpu-note").textContent = place ? `${choice.gpu} has compute capability ${table.cards[place - 1][0]}.` : "";
    const found = answer(choice);
    $("answer").replaceChildren(shownAnswer(choice, found));
    $("card").replaceChildren(...shownRelease(choice, found));
    $("releases").tBodies[0].replaceChildren(...table.minors.map((minor) => shownRow(choice, minor)));
  };

  const chosen = () => {
    const text = $("gpu").value;
    const gpu = cardOf(text);
    if (text.trim() && !gpu) {
      $("gpu-note").textContent = "This card is not in the list, or its name means several cards.";
      return;
    }
    const driver = driverOf($("driver").value);
    $("driver-wrong").textContent = $("driver").value.trim() && !driver ? "This is not a version of NVIDIA's driver. nvidia-smi prints it as Driver Version: 550.54.14." : "";
    if ($("driver-wrong").textContent) return;
    const choice = { os: known.os($("os").value), gpu, driver, python: $("python").value, tf: $("tf").value };
    if (address(choice) === address(fromAddress())) show();
    else location.hash = address(choice);
  };

  const names = document.createDocumentFragment();
  for (const [capability, list] of table.cards) for (const name of list) names.append(element("option", { value: name }, capability));
  $("gpus").append(names);
  for (const [word, title] of table.systems) $("os").append(element("option", { value: word }, title));
  const offered = (choice) => {
    const platform = table.systems[systemOf(choice)][2];
    if ($("drivers").dataset.platform === String(platform)) return;
    $("drivers").dataset.platform = platform;
    $("drivers").replaceChildren(...[...table.drivers[platform][1]].reverse().map((one) => element("option", { value: one }, "its newest")));
  };
  for (const one of [...table.pythons].reverse()) $("python").append(element("option", { value: one }, one));
  for (const one of table.minors) $("tf").append(element("option", { value: one }, one));
  $("choice").addEventListener("change", chosen);
  $("driver").addEventListener("input", () => { if (!$("driver").value) chosen(); });
  $("gpu").addEventListener("input", () => { if (!$("gpu").value || named.has($("gpu").value.trim().toLowerCase())) chosen(); });
  $("choice").addEventListener("submit", (event) => { event.preventDefault(); chosen(); });
  $("choice").addEventListener("reset", (event) => { event.preventDefault(); location.hash = "#"; });
  $("link").addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(location.href); $("link").textContent = "Copied"; }
    catch { $("link").textContent = "Copy it from the address"; }
    setTimeout(() => { $("link").textContent = "Copy link"; }, 2000);
  });
  addEventListener("hashchange", show);
  $("choice").hidden = false;
  $("legend").hidden = false;
  show();
})();
