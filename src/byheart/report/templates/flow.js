"use strict";
(() => {
  const memory = JSON.parse(document.getElementById("memory").textContent);
  const { network } = memory, perToken = network.read === "each";
  const { tokensOf, evaluate, show } = exactly(memory);
  const byId = (id) => document.getElementById(id);
  const steps = memory.steps; // [{name, words, layers, kind}]
  const ends = steps.map((sum => (step) => (sum += step.layers))(0));
  const mixes = network.layers.findIndex((l) => ["attention", "pool", "flatten"].includes(l.layer));
  const NONE = "no answer: the output is not a class";
  const answerOf = (answer) => (answer === null ? NONE : "answer: " + answer);
  let last = null, zoomed = null;

  const short = ([m, e]) => {
    const small = m > -1000000n && m < 1000000n, size = m < 0n ? -m : m;
    const text = (m < 0n ? "-" : "") + (small ? size.toString() : "0x" + size.toString(16));
    return (text.length > 18 ? text.slice(0, 9) + "…" + text.slice(-6) : text) + (e ? "·2^" + e : "");
  };
  const place = () => (perToken ? Number(byId("place").value) : 0);
  const trace = () => last.traces[place()];

  const stepOf = (layer) => ends.findIndex((end) => layer < end);
  const make = (tag, className, text) => { const node = document.createElement(tag); node.className = className; node.textContent = text; return node; };
  const shownLayers = () => {
    const first = zoomed === null ? 0 : ends[zoomed] - steps[zoomed].layers, stop = zoomed === null ? ends[ends.length - 1] : ends[zoomed];
    const skip = Math.max(1, Math.ceil((stop - first) / 600));
    return [...Array(stop - first).keys()].filter((k) => k % skip === 0).map((k) => first + k);
  };

  // One column of dots per number of the stream, side by side; `all` shows every number, else the chosen one.
  function draw() {
    const chosen = byId("channel").value, canvas = byId("flow"), GAP = 3, layers = shownLayers(), rows = layers.map((k) => trace()[k]);
    const widest = Math.max(...rows.map((z) => z.length));
    const channels = chosen === "all" ? [...Array(Math.min(widest, 24)).keys()] : [Number(chosen)];
    const columns = channels.map((c) => {
      const numbers = rows.map((z) => z[c] || [0n, 0]), low = Math.min(0, ...numbers.map((x) => x[1]));
      const texts = numbers.map(([m, e]) => ((m < 0n ? -m : m) << BigInt(e - low)).toString(2));
      return { texts, width: Math.min(4000, Math.max(4, ...texts.map((t) => t.length))) };
    });
    const width = columns.reduce((sum, c) => sum + c.width + GAP, -GAP);
    canvas.width = Math.max(8, width);
    canvas.height = rows.length;
    const height = Math.max(120, Math.min(600, rows.length * 6));
    canvas.style.height = height + "px";
    const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    context.clearRect(0, 0, canvas.width, rows.length);
    let left = 0;
    columns.forEach(({ texts, width: own }, c) => {
      context.fillStyle = style.getPropertyValue(c % 2 ? "--least" : "--measured").trim() || "#0969a8";
      texts.forEach((text, y) => {
        for (let i = 0; i < text.length; i++) if (text[i] === "1") context.fillRect(left + own - text.length + i, y, 1, 1);
      });
      left += own + GAP;
    });
    bands(layers, height);
  }

  // Beside the picture: which lines belong to which step.
  function bands(layers, height) {
    const counts = new Map();
    layers.forEach((layer) => counts.set(stepOf(layer), (counts.get(stepOf(layer)) || 0) + 1));
    byId("bands").replaceChildren(...[...counts].map(([k, count]) => {
      const share = count / layers.length, band = make("div", "s" + (k % 4), share * height > 15 ? String(k + 1) : "");
      band.style.flexGrow = count;
      band.title = k + 1 + ". " + steps[k].name;
      return band;
    }));
  }

  // What the stream holds after each step: of every token until they are mixed, then of the one that is followed.
  function cards() {
    const row = last.row, followed = trace();
    byId("steps").replaceChildren(...steps.map((step, k) => {
      const card = make("button", "step e" + (k % 4) + (zoomed === k ? " zoomed" : ""), "");
      card.type = "button";
      card.setAttribute("aria-pressed", String(zoomed === k));
      card.append(make("b", "", k + 1 + ". " + step.name), make("span", "soft", (step.words ? step.words + "; " : "") + step.layers + (step.layers === 1 ? " layer" : " layers")));
      const Z = last.states[ends[k] - 1], chips = make("span", "chips", "");
      const apart = (mixes < 0 || ends[k] <= mixes) && Z.length >= row.length;
      if (apart) row.slice(0, 16).forEach((token, i) => chips.append(chip(show(token) + " ", Z[Z.length - row.length + i])));
      else chips.append(chip("", followed[ends[k] - 1]));
      if (apart && row.length > 16) chips.append("…");
      if (step.kind) chips.append(make("strong", "", decision(step, k)));
      if (k === steps.length - 1) chips.append(make("strong", "", answerOf(last.answers[place()])));
      card.append(chips);
      card.addEventListener("click", () => { zoomed = zoomed === k ? null : k; cards(); draw(); });
      return card;
    }));
  }
  // A kink of the selector lies between two groups; a fold reflects what lies above its middle.
  function decision(step, k) {
    const fired = last.active[place()].slice(ends[k] - step.layers, ends[k]);
    if (step.kind === "group") return "group " + (1 + fired[0].slice(1).filter(Boolean).length) + " of " + fired[0].length;
    return fired.filter((units) => units.some(Boolean)).length + " of " + step.layers + " folds reflect";
  }
  const chip = (name, z) => {
    const node = make("span", "chip", "");
    node.append(make("span", "soft", name), z.slice(0, 6).map(short).join(", ") + (z.length > 6 ? ", …" : ""));
    return node;
  };

  function point(event) {
    const box = byId("flow").getBoundingClientRect(), layers = shownLayers();
    const layer = layers[Math.min(layers.length - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * layers.length)))];
    const k = stepOf(layer), z = trace()[layer];
    byId("pointed").textContent = "layer " + (layer + 1) + " of " + ends[ends.length - 1] + ", " + (k + 1) + ". " + steps[k].name + ": " + z.slice(0, 4).map(short).join(", ") + (z.length > 4 ? ", …" : "");
  }

  function offer(select, names) {
    const old = select.value;
    select.replaceChildren(...names.map(([label, value]) => new Option(label, value)));
    if (names.some(([, value]) => value === old)) select.value = old;
  }

  function run() {
    const text = byId("tokens").value, shown = byId("answer");
    if (!text.trim()) return;
    try {
      const row = tokensOf(text);
      last = { ...evaluate(row), row };
      shown.className = "";
      shown.textContent = perToken
        ? "answers: " + last.answers.map((answer) => (answer === null ? "none" : answer)).join(" · ")
        : answerOf(last.answers[0]);
      if (perToken) offer(byId("place"), row.map((token, k) => [k + 1 + ": " + show(token), String(k)]));
      const widest = Math.max(...trace().map((z) => z.length));
      offer(byId("channel"), [["all", "all"], ...[...Array(widest).keys()].map((k) => [String(k + 1), String(k)])]);
      cards();
      draw();
    } catch (error) {
      shown.className = "error";
      shown.textContent = error.message;
    }
  }

  byId("run").addEventListener("click", run);
  byId("tokens").addEventListener("keydown", (event) => { if (event.key === "Enter") run(); });
  byId("channel").addEventListener("change", draw);
  if (perToken) byId("place").addEventListener("change", () => { cards(); draw(); });
  byId("flow").addEventListener("pointermove", (event) => { if (last) point(event); });
  const example = byId("example");
  if (example) example.addEventListener("change", () => { byId("tokens").value = example.value; run(); });
  run();
})();
