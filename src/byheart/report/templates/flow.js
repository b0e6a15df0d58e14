"use strict";
(() => {
  const memory = JSON.parse(document.getElementById("memory").textContent);
  const { network } = memory, perToken = network.read === "each";
  const { tokensOf, evaluate } = exactly(memory);
  const byId = (id) => document.getElementById(id);
  const stages = network.stages.length ? network.stages : [["all layers", network.layers.length]];
  const NONE = "no answer: the output is no class";
  let last = null;

  const short = ([m, e]) => {
    const small = m > -1000000n && m < 1000000n, size = m < 0n ? -m : m;
    const text = (m < 0n ? "-" : "") + (small ? size.toString() : "0x" + size.toString(16));
    return (text.length > 18 ? text.slice(0, 9) + "…" + text.slice(-6) : text) + (e ? "·2^" + e : "");
  };
  const trace = () => last.traces[perToken ? Number(byId("place").value) : 0];

  // One column of dots per number of the stream, side by side; `all` shows every number, else the chosen one.
  function draw() {
    const chosen = byId("channel").value, canvas = byId("flow"), GAP = 3, followed = trace();
    const widest = Math.max(...followed.map((z) => z.length));
    const channels = chosen === "all" ? [...Array(Math.min(widest, 24)).keys()] : [Number(chosen)];
    const step = Math.max(1, Math.ceil(followed.length / 600)), rows = followed.filter((_, i) => i % step === 0);
    const columns = channels.map((c) => {
      const numbers = rows.map((z) => z[c] || [0n, 0]), low = Math.min(0, ...numbers.map((x) => x[1]));
      const texts = numbers.map(([m, e]) => ((m < 0n ? -m : m) << BigInt(e - low)).toString(2));
      return { texts, width: Math.min(4000, Math.max(4, ...texts.map((t) => t.length))) };
    });
    const width = columns.reduce((sum, c) => sum + c.width + GAP, -GAP);
    canvas.width = Math.max(8, width);
    canvas.height = rows.length;
    canvas.style.height = Math.max(120, Math.min(600, rows.length * 5)) + "px";
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
  }

  function table() {
    const followed = trace(), head = document.createElement("tr");
    head.innerHTML = "<th>after stage</th><th>numbers of the stream</th>";
    let place = 0;
    const rows = stages.map(([name, count]) => {
      place += count;
      const z = followed[place - 1], row = document.createElement("tr");
      row.append(document.createElement("td"), document.createElement("td"));
      row.children[0].textContent = name;
      row.children[1].textContent = z.slice(0, 12).map(short).join(", ") + (z.length > 12 ? ", …" : "");
      return row;
    });
    byId("trace").replaceChildren(head, ...rows);
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
      last = evaluate(row);
      shown.className = "";
      shown.textContent = perToken
        ? "answers: " + last.answers.map((answer) => (answer === null ? "none" : answer)).join(" · ")
        : last.answers[0] === null ? NONE : "answer: " + last.answers[0];
      if (perToken) offer(byId("place"), row.map((token, k) => [k + 1 + ": " + JSON.stringify(token), String(k)]));
      const widest = Math.max(...trace().map((z) => z.length));
      offer(byId("channel"), [["all", "all"], ...[...Array(widest).keys()].map((k) => [String(k + 1), String(k)])]);
      draw();
      table();
    } catch (error) {
      shown.className = "error";
      shown.textContent = error.message;
    }
  }

  byId("run").addEventListener("click", run);
  byId("tokens").addEventListener("keydown", (event) => { if (event.key === "Enter") run(); });
  byId("channel").addEventListener("change", draw);
  if (perToken) byId("place").addEventListener("change", () => { draw(); table(); });
  const example = byId("example");
  if (example) example.addEventListener("change", () => { byId("tokens").value = example.value; run(); });
  run();
})();
