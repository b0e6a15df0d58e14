// The page: editable rows, a choice of networks, queries, sizes over N, files to download.
const byId = (id) => document.getElementById(id);
const given = JSON.parse(byId("given").textContent);
const CHAPTERS = { E_in: "numbers", "token hash": "hash", "group selector": "group", E_out: "label", "token code": "token code", averaging: "attention" };
const [TOKEN, ROW] = given.kind === "words" ? ["word", "text"] : ["letter", "word"]; // names of a token and a row
const cutting = { kind: given.kind, max_length: null, pad: null };
const cutWord = (word) => exactly({ network: { layers: [] }, encoder: { symbols: [] }, classes: [], tokens: cutting }).tokensOf(word);

let typed = [], current = null, chosen = "here", question = "";
const player = makePlayer(byId("player"), { answerWords });

if (self !== top) document.documentElement.classList.add("framed"); // the page around it has introduced it

// The network to evaluate: {title, memory, engine, rows: [{text, tokens, label}], runs, built}.
function network(memory, rows, built) {
  const engine = exactly(memory);
  const runs = new Map();
  const others = rows.slice(0, 60).map((row) => ({ run: engine.evaluate(row.tokens), words: row.text, kind: memory.classes.indexOf(row.label), tokens: row.tokens }));
  return { memory, engine, rows, others, built, runs };
}
const embedded = new Map(given.networks.map((found) => {
  const engine = exactly(found.live), rows = given.rows.map(({ word, label }) => ({ text: word, tokens: engine.tokensOf(word), label }));
  return [found.name, { ...found, make: () => network(found.live, rows, null) }];
}));
// byheart's own networks are those of the given rows, whatever the visitor types.
const changed = () => JSON.stringify(typed.map(({ word, label }) => [word.trim(), label.trim()])) !== JSON.stringify(given.rows.map(({ word, label }) => [word, label]));
const asked = () => (chosen === "here" ? current : (embedded.get(chosen).ready ||= embedded.get(chosen).make()));

function answerWords(answer) {
  const label = asked().rows.find((row) => row.text === question)?.label, older = chosen !== "here" && changed();
  if (label === undefined) return (answer === null ? "No label: the output matches none of them." : `Answer: ${answer}.`) + ` This row was not ${older ? "among the given rows, for which this network was built" : "memorized"}, so its label is arbitrary.`;
  return answer === label ? `Answer: ${answer}, as labelled${older ? " in the given rows" : ""}.` : `Answer: ${answer ?? "none"}, but the label is ${label}.`;
}

// --- rows ---------------------------------------------------------------------------------------------------------
function showRows() {
  byId("rows").tBodies[0].replaceChildren(...typed.map((row, k) => {
    const field = (name, words) => {
      const input = element("input", { type: "text", value: row[name], class: name, "aria-label": `${words} of row ${k + 1}`, autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
      input.addEventListener("input", () => { row[name] = input.value; soon(); });
      return element("td", {}, input);
    };
    const ask = element("button", { type: "button", "aria-label": `predict row ${k + 1}`, title: "predict the label of this row" }, "predict"), drop = element("button", { type: "button", "aria-label": `remove row ${k + 1}`, title: "remove this row" }, "×");
    ask.addEventListener("click", () => { flush(); askFor(typed[k].word.trim()); });
    drop.addEventListener("click", () => { typed.splice(k, 1); showRows(); if (typed.length > 40) soon(); else rebuild(); });
    return element("tr", {}, field("word", "word"), field("label", "label"), element("td", { class: "narrow" }, ask), element("td", { class: "narrow" }, drop));
  }));
}
let waiting = null;
const soon = (after = typed.length > 40 ? 600 : 150) => {
  clearTimeout(waiting);
  if (typed.length > 40) showStatus("status", [element("p", {}, "Building …")]);
  waiting = setTimeout(() => { waiting = null; rebuild(); }, after);
};
const flush = () => { if (waiting !== null) { clearTimeout(waiting); waiting = null; rebuild(); } };

function rebuild() {
  const body = byId("rows").tBodies[0];
  body.querySelectorAll(".why").forEach((row) => row.remove());
  [...body.rows].forEach((row) => row.classList.remove("wrong"));
  const read = readRows(typed, cutWord, given.limits), started = performance.now();
  try {
    if (read.problem) throw Object.assign(new Error(read.problem), { at: read.at });
    const built = buildMemory(read.rows), size = sizeOf(built.network);
    const memory = { network: built.network, encoder: built.encoder, classes: built.classes, tokens: cutting, steps: stagesOf(built) };
    current = network(memory, read.rows, built);
    current.size = size;
    [...body.rows].forEach((row, k) => { row.className = colour(Math.max(0, built.classes.indexOf(typed[k].label.trim()))); });
    current.agree = read.rows.filter((row) => current.engine.evaluate(row.tokens).answers[0] === row.label).length;
    const time = Math.max(1, Math.round(performance.now() - started));
    showStatus("status", [
      element("p", {}, element("b", {}, `${plural(read.rows.length, "row")}, ${plural(built.classes.length, "label")}`), `: ${plural(size.parameters, "parameter")}, computed in ${time} ms.`),
      element("p", {}, current.agree === read.rows.length ? "Every row was evaluated with exact integers: every answer is its label." : `${read.rows.length - current.agree} of the rows get another answer: please report this.`),
      element("p", { class: "soft" }, ...built.classes.slice(0, 8).map((name, k) => element("span", { class: colour(k), style: "margin-right:.8rem" }, element("span", { class: "key" }), name)), built.classes.length > 8 ? "…" : ""),
      ...read.remarks.map((words) => element("p", { class: "soft" }, words[0].toUpperCase() + words.slice(1) + ".")),
    ]);
  } catch (error) {
    current = null;
    const row = body.rows[error.at];
    if (row) {
      row.classList.add("wrong");
      row.after(element("tr", { class: "why" }, element("td", { colspan: 4 }, error.message)));
    }
    showStatus("status", [element("p", {}, row ? `Nothing is built: see row ${error.at + 1}.` : error.message)], true);
  }
  for (const id of ["save", "save-rows"]) byId(id).disabled = !current;
  showNetworks();
  showCurves();
  if (current && (!question || (chosen === "here" && !current.rows.some((row) => row.text === question)))) question = current.rows[0].text;
  refresh();
}
const showStatus = (id, nodes, bad = false) => { byId(id).className = "status" + (bad ? " error" : ""); byId(id).replaceChildren(...nodes); };
function stagesOf({ network: { stages } }) {
  const stage = (name, layers, kind = "") => ({ name, layers, kind, words: given.words[name] || "" });
  return stages.flatMap(([name, count]) => (name === "label memory" ? [stage("group selector", 1, "group"), stage("folds", count - 1, "folds")] : [stage(name, count)]));
}

// --- networks and queries -----------------------------------------------------------------------------------------
function showNetworks() {
  const choices = [["here", "built here, now", current ? plural(current.size.parameters, "parameter") : "nothing yet"], ...given.networks.map((found) => [found.name, found.title + (changed() ? " for the given rows" : ""), `${plural(found.parameters, "parameter")}, ${found.verdict}${changed() ? "; without your changes" : ""}`])];
  byId("networks").replaceChildren(byId("networks").querySelector("legend"), ...choices.map(([name, title, words]) => {
    const input = element("input", { type: "radio", name: "network", value: name });
    input.checked = name === chosen;
    input.addEventListener("change", () => { chosen = name; if (name !== "here" && !given.rows.some((row) => row.word === question)) question = given.rows[0].word; refresh(0); });
    return element("label", { class: "choice" }, input, element("span", {}, title, element("small", {}, words)));
  }));
}
function askFor(word) {
  question = word;
  const ask = current || chosen !== "here" ? asked() : null;
  refresh(ask && player.chapter < buildChapters(ask).length ? buildSteps(ask).length : undefined);
}
const buildChapters = ({ built }) => (built ? [[TOKEN + "s", built.encoder.symbols.length], ["ids", built.rows.length], ["lines", built.memory.lines.length], ["cells", built.classes.length]].map(([name, value]) => ({ name, value: String(value), group: "build" })) : []);

// Shows the query's way; `start` is the step to begin with (else the one that was in view).
function refresh(start) {
  const it = chosen === "here" ? current : asked(), problem = byId("question-problem");
  byId("question").value = question;
  const found = given.networks.find(({ name }) => name === chosen);
  byId("about").textContent = !found ? "" : found.about + (changed() ? " Your changes are only in the network that is built here." : "");
  const body = byId("rows").tBodies[0], fields = [...body.querySelectorAll("tr:not(.why)")];
  fields.forEach((row, k) => row.classList.toggle("asked", typed[k] && typed[k].word.trim() === question));
  problem.textContent = "";
  if (!it) { player.clear(); return; }
  const chapters = buildChapters(it), steps = it.built ? buildSteps(it) : [];
  let at = start ?? player.at;
  try {
    const row = it.engine.tokensOf(question), run = it.engine.evaluate(row), label = it.rows.find((r) => r.text === question)?.label ?? run.answers[0];
    const others = it.others.map((o) => ({ ...o, me: JSON.stringify(o.tokens) === JSON.stringify(row) }));
    const way = { memory: it.memory, engine: it.engine, run, row, which: 0, others, kind: Math.max(0, it.memory.classes.indexOf(label)) };
    steps.push(...stepsOfRow(way).map((step) => ({ ...step, chapter: chapters.length + step.stage })));
    chapters.push(...chaptersOf(way, CHAPTERS).map((chapter) => ({ ...chapter, group: it.built ? "predict" : "" })));
  } catch (error) {
    problem.textContent = error.message[0].toUpperCase() + error.message.slice(1) + ".";
    if (!steps.length) { player.clear(); return; }
    at = Math.min(at, steps.length - 1);
  }
  player.load(steps, chapters, at);
  shown = steps;
}
let shown = [];

// --- the steps of building ----------------------------------------------------------------------------------------
function buildSteps(it) {
  const { built, memory, engine, rows } = it, { hash, memory: found } = built, first = { memory, engine, run: it.others[0].run, row: rows[0].tokens, which: 0, others: it.others, untyped: true };
  const attention = memory.network.layers.findIndex((l) => l.layer === "attention"), at = (layer, s) => ({ ...first, layer, stage: memory.steps[s], s, mixed: layer > attention, type: memory.network.layers[layer], before: first.run.traces[0][layer - 1], after: first.run.traces[0][layer] });
  const last = memory.network.layers.length - 2, selector = memory.steps.findIndex((s) => s.kind === "group"), shownRows = it.others.slice(0, 12);
  const ids = it.others.map((o) => ({ v: o.run.traces[0][attention][0], words: o.words, kind: o.kind })), bent = bentStep(at(attention + 1, selector)), cells = foldStep({ ...at(last, selector + 1), place: found.folds - 1, first: last - found.folds + 1 });
  const letters = element("table", { class: "plain letters" }, element("tr", {}, element("th", {}, ROW), ...it.others[0].run.inputs.map((_, k) => element("th", {}, "position " + k))), ...shownRows.map((o) => element("tr", {}, element("td", {}, o.words), ...o.run.inputs.map((_, k) => {
    const token = o.tokens[k - o.run.inputs.length + o.tokens.length];
    return element("td", {}, element("span", { class: "letter" }, token ?? "·"), number(o.run.states[0][k][0]));
  }))));
  const failed = hash.failures.slice(0, 4).map((f, k) => element("li", {}, `draw ${k + 1}${f.folds ? `, ${plural(f.folds, "fold")}` : ", no folds"}: “${f.first}” and “${f.second}” both got ${f.id}`));
  const lines = element("table", { class: "plain" }, element("tr", {}, ...["group", "ids", "S", "U", "lines tried"].map((name) => element("th", {}, name))), ...found.lines.slice(0, 16).map((line, k) => element("tr", {}, ...[`${k + 1}`, line.first === line.last ? `${line.first}` : `${line.first} to ${line.last}`, numberText(whole(line.slope)), numberText(whole(line.constant)), line.tries.toLocaleString("en")].map((cell) => element("td", {}, cell)))));
  const parts = element("table", { class: "plain" }, element("tr", {}, ...["stage", "layers", "parameters"].map((name) => element("th", {}, name))), ...stageSizes(memory).map(({ name, layers, parameters }) => element("tr", {}, ...[name, layers, parameters].map((cell) => element("td", {}, String(cell))))), element("tr", {}, element("td", {}, "all"), element("td", {}, String(memory.network.layers.length)), element("td", {}, String(it.size.parameters))));
  const made = [
    { title: `Every ${TOKEN} gets a number`, draw: () => element("div", { class: "scroll" }, letters), words: [
      paragraph(`The ${TOKEN}s that occur, in order: ${memory.encoder.symbols.slice(0, 30).map((s, k) => `${s} ${k + 1}`).join(", ")}${memory.encoder.symbols.length > 30 ? ", …" : ""}. The first layer maps a ${TOKEN} and its position to one number: ${hash.scale} times the ${TOKEN}’s, plus ${hash.scale * hash.stride} times the position. The table shows it under each ${TOKEN}.`),
      paragraph(`${hash.stride} is one more than there are ${TOKEN}s, so that no two of them get the same number at any positions.${memory.encoder.padded ? ` Shorter ${ROW}s are padded at the start (·).` : ""}`)] },
    { title: `Every ${ROW} gets a distinct id`, draw: (width) => lineFigure(width, ids, { label: "the ids of all rows", low: minus(smallest(ids.map((m) => m.v)), whole(1)), high: plus(largest(ids.map((m) => m.v)), whole(1)) }), words: [
      paragraph(`Attention will add ${hash.factor === 1 ? "the sum" : `${hash.factor} times the sum`} of all the ${TOKEN}s’ numbers to the last one: that is the ${ROW}’s id. Ids must differ. The weights are sampled until they do: here in draw ${hash.draws}${hash.places.length ? `, with ${plural(hash.places.length, "fold")} that ${hash.places.length === 1 ? "stirs" : "stir"} the ${TOKEN}s’ numbers first` : ""}.`),
      ...(failed.length ? [element("ul", {}, ...failed, ...(hash.failures.length > 4 ? [element("li", {}, "…")] : []))] : [])] },
    { title: "Neighbours share a line", draw: bent.draw, words: [
      paragraph(`Sorted by id, the ${ROW}s are split into ${plural(found.lines.length, "group")}. Each group gets a line S·x + U of its own, and a line meets the one before it in the gap between their groups: so one unit, 3 parameters, is enough for a whole group.`),
      paragraph(`Which line? One that ${plural(found.folds, "fold")} will map to the correct labels. Lines were tried at random, ${found.tried.toLocaleString("en")} in all (compact itself chooses their digits one after the other, which is how it reaches long groups).`)], more: element("div", { class: "scroll" }, lines) },
    { title: "Every row in its label’s cell", draw: cells.draw, words: [
      paragraph(`A strip from 0 to ${numberText(whole(found.range))}, folded in half ${plural(found.folds, "time")}, is ${numberText(whole(found.range / 2 ** found.folds))} long. The picture is the last fold: every ${ROW} ends in the cell of its label, ${numberText(whole(found.cell))} wide. E_out reads which cell it is.`),
      paragraph(`That is the whole network: ${plural(it.size.parameters, "parameter")} in ${plural(memory.network.layers.length, "layer")}. Here it is, written out; a unit computes max(0, ·). Continue with a query.`)], more: element("div", {}, element("pre", { class: "scroll", tabindex: "0" }, formulas(memory).join("\n")), element("div", { class: "scroll" }, parts)) },
  ];
  return made.map((step, chapter) => ({ chapter, open: () => step }));
}
// The network as formulas on the stream h of every token, with all its weights.
function formulas({ network: { layers }, classes }) {
  const n = (w) => numberText(whole(w)), signed = (w) => (w < 0 ? " − " : " + ") + n(Math.abs(w)), times = (w, name) => (w === 1 ? name : w === -1 ? "−" + name : n(w) + "·" + name);
  const weight = (row, j) => (row.find(([k]) => k === j) || [0, 0])[1];
  return layers.flatMap((l, k) => {
    if (l.layer === "attention") return [`h ← h + ${n(l.heads[0].output.rows[0][0][1])}·mean of all tokens’ h`];
    if (l.layer === "affine" && !k) return [`h = ${times(weight(l.weight.rows[0], 0), TOKEN)} + ${times(weight(l.weight.rows[0], 1), "position")}`];
    if (l.layer === "affine") return classes.slice(0, 32).map((name, g) => `logit of ${name} = ${weight(l.weight.rows[g], 0) ? times(weight(l.weight.rows[g], 0), "h") + (l.bias[g] ? signed(l.bias[g]) : "") : n(l.bias[g])}`);
    const units = l.bias1.map((b, j) => { const out = weight(l.weight2.rows[0], j); return `${out < 0 ? " − " : " + "}${Math.abs(out) === 1 ? "" : n(Math.abs(out)) + "·"}max(0, ${times(weight(l.weight1.rows[j], 0), "h")}${b ? signed(b) : ""})`; });
    return [`h ← h${units.join("")}${l.bias2[0] ? signed(l.bias2[0]) : ""}`];
  });
}
const entries = (l) => [l.weight, l.weight1, l.weight2, ...(l.heads || []).flatMap((h) => [h.value, h.output])].reduce((sum, m) => sum + (m ? m.rows.length * m.columns : 0), 0) + [l.bias, l.bias1, l.bias2].reduce((sum, b) => sum + (b ? b.length : 0), 0);
function stageSizes(memory) {
  let at = 0;
  return memory.steps.map(({ name, layers }) => ({ name, layers, parameters: memory.network.layers.slice(at, (at += layers)).reduce((sum, l) => sum + entries(l), 0) }));
}

// --- sizes over N -------------------------------------------------------------------------------------------------
const dots = new Map();
function randomRows(N) {
  const { n, alphabet, C } = given.growth, random = randomFrom(N), rows = new Map();
  while (rows.size < N) { const tokens = Array.from({ length: n }, () => alphabet[Math.floor(random() * alphabet.length)]), text = tokens.join(""); rows.set(text, { text, tokens, label: "l" + Math.floor(random() * C) }); }
  return [...rows.values()];
}
function buildRandom(N) {
  if (N > given.growth.built || dots.has(N)) return;
  const rows = randomRows(N), built = buildMemory(rows), engine = exactly({ network: built.network, encoder: built.encoder, classes: built.classes, tokens: cutting });
  if (rows.every((row) => engine.evaluate(row.tokens).answers[0] === row.label)) dots.set(N, sizeOf(built.network).parameters);
}
function showCurves() {
  const { grid, series } = given.growth, k = Number(byId("N").value), N = grid[k], logarithmic = byId("logarithmic").checked;
  byId("N-shown").textContent = "N = " + N.toLocaleString("en");
  const drawn = series.map((s, j) => ({ name: s.name, kind: s.kind + " " + colour(j), points: grid.map((n, i) => [n, s.values[i]]) }));
  drawn.push({ name: "built on this page", kind: "built " + colour(4), dots: [...dots].map(([n, size]) => [n, size, n === N]) });
  if (current) drawn.push({ name: "your rows", kind: "yours " + colour(5), dots: [[current.rows.length, current.size.parameters, true]] });
  const box = byId("curves"), width = Math.max(260, Math.floor((box.clientWidth || 640) - 24)), unit = 1.1 * Math.max(...series.filter((s) => s.scale).map((s) => s.values[k]));
  box.replaceChildren(curvesFigure(width, drawn, { label: `parameters against the number of rows, up to N = ${N}`, N, logarithmic, unit }));
  const line = (j, name, words, value) => element("tr", {}, element("td", { class: colour(j) }, element("span", { class: "key" }), name, element("small", {}, words)), element("td", {}, value));
  byId("sizes").replaceChildren(element("tr", {}, element("th", {}, `parameters for ${plural(N, "row")}`), element("th", {}, "")), ...series.map((s, j) => line(j, s.name, s.words, s.values[k].toLocaleString("en"))),
    line(4, "built on this page", N > given.growth.built ? `up to ${given.growth.built} rows` : "counted from its layers, all rows evaluated", dots.has(N) ? dots.get(N).toLocaleString("en") : N > given.growth.built ? "–" : "…"),
    ...(current ? [line(5, "your rows", `${plural(current.rows.length, "row")}, ${plural(current.built.classes.length, "label")}`, current.size.parameters.toLocaleString("en"))] : []));
}
// Once the curves are in view, networks of every fourth size up to the slider's are built, one after the other.
let counting = null, inView = false;
function fillDots() {
  clearTimeout(counting);
  const { grid, built } = given.growth, k = Number(byId("N").value), wanted = [k, ...grid.map((_, i) => i).filter((i) => i < k && (k - i) % 4 === 0)].find((i) => grid[i] <= built && !dots.has(grid[i]));
  if (inView && wanted !== undefined) counting = setTimeout(() => { buildRandom(grid[wanted]); showCurves(); fillDots(); }, 60);
}
new IntersectionObserver(([seen]) => { inView = seen.isIntersecting; fillDots(); }).observe(byId("curves"));
byId("N").addEventListener("input", () => { showCurves(); fillDots(); });
byId("logarithmic").addEventListener("change", showCurves);

// --- files ----------------------------------------------------------------------------------------------------------
function hand(name, content, type) {
  const link = element("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
const cell = (value) => (/[",\r\n]|^\s|\s$/.test(value) ? '"' + value.replace(/"/g, '""') + '"' : value);
byId("save").addEventListener("click", () => { flush(); if (current) hand("words.byheart", memoryFile(current.built, given.kind, current.agree, given.terms), "application/json"); });
byId("save-rows").addEventListener("click", () => { flush(); if (current) hand("words.csv", "text,label\n" + current.rows.map((row) => cell(row.text) + "," + cell(row.label) + "\n").join(""), "text/csv"); });

// --- paper ----------------------------------------------------------------------------------------------------------
// Printing shows every step of the query in view, one below the other.
window.addEventListener("beforeprint", () => byId("printed").replaceChildren(...printedSteps(shown, answerWords)));
window.addEventListener("afterprint", () => { byId("printed").replaceChildren(); refresh(); });

byId("add").addEventListener("click", () => { typed.push({ word: "", label: "" }); showRows(); byId("rows").tBodies[0].rows[typed.length - 1].querySelector("input").focus(); });
byId("again").addEventListener("click", begin);
byId("ask").addEventListener("submit", (event) => { event.preventDefault(); flush(); askFor(byId("question").value.trim()); });
new ResizeObserver(() => showCurves()).observe(byId("grow"));
function begin() { typed = given.rows.map(({ word, label }) => ({ word, label })); question = given.rows[0].word; showRows(); if (typed.length > 40) soon(30); else rebuild(); }
begin();
