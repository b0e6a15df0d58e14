// The report's live part: evaluates a row, shows its way step by step, and the bits of the stream layer by layer.
const byId = (id) => document.getElementById(id);
const memory = JSON.parse(byId("memory").textContent), engine = exactly(memory);
const perToken = memory.network.read === "each", { steps: stages } = memory;
const ends = stages.map((sum => (stage) => (sum += stage.layers))(0));
const answerWords = (answer) => (answer === null ? "no answer: the output is not a class" : "answer: " + answer);
const examples = [...(byId("example") ? byId("example").options : [])].map((option) => option.value);
const player = makePlayer(byId("player"), { answerWords, onStep: (step) => { stepShown = step; mark(); } });
let last = null, stepShown = null, shown = [], others = null;

const which = () => (perToken ? Number(byId("place").value) : 0);
const trace = () => last.traces[which()];
const stageOf = (layer) => ends.findIndex((end) => layer < end);
const drawnLayers = () => {
  const count = ends[ends.length - 1], skip = Math.max(1, Math.ceil(count / 600));
  return [...Array(count).keys()].filter((k) => k % skip === 0);
};

// --- the picture of bits: one line per layer, one column per number of the stream, the lowest bit on the right ------------
const DIGITS = 16; // binary digits shown of a fraction that does not end
const placesOf = ({ d }) => { const places = d.toString(2).length - 1; return d === 1n << BigInt(places) ? places : DIGITS; };
function drawBits() {
  const chosen = byId("channel").value, canvas = byId("flow"), GAP = 3, layers = drawnLayers(), rows = layers.map((k) => trace()[k]);
  const widest = Math.max(...rows.map((z) => z.length));
  const channels = chosen === "all" ? [...Array(Math.min(widest, 24)).keys()] : [Number(chosen)];
  const columns = channels.map((channel) => {
    const numbers = rows.map((z) => z[channel] || { n: 0n, d: 1n }), low = Math.max(...numbers.map(placesOf));
    const texts = numbers.map(({ n, d }) => (((n < 0n ? -n : n) << BigInt(low)) / d).toString(2));
    return { channel, low, texts, width: Math.min(4000, Math.max(4, ...texts.map((t) => t.length))) };
  });
  canvas.width = Math.max(8, columns.reduce((sum, c) => sum + c.width + GAP, -GAP));
  canvas.height = rows.length;
  const height = Math.max(120, Math.min(600, rows.length * 6));
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  context.clearRect(0, 0, canvas.width, rows.length);
  let left = 0;
  columns.forEach(({ texts, width: own }, c) => {
    context.fillStyle = style.getPropertyValue(c % 2 ? "--least" : "--measured").trim() || "#0969a8";
    texts.forEach((text, y) => { for (let i = 0; i < text.length; i++) if (text[i] === "1") context.fillRect(left + own - text.length + i, y, 1, 1); });
    left += own + GAP;
  });
  labelBits(columns, layers.length, height);
}
const power = (k) => element("span", {}, "2", element("sup", {}, String(k).replace("-", "−")));
function labelBits(columns, count, height) {
  byId("first-layer").textContent = "layer 1";
  byId("last-layer").textContent = "layer " + ends[ends.length - 1];
  byId("places").replaceChildren(...columns.map(({ channel, low, width }) => {
    const ends = columns.length <= 4 ? [power(width - 1 - low), element("span", {}, columns.length > 1 ? `number ${channel + 1}` : "value of a dot"), power(-low)] : [element("span", {}, (channel ? "" : "no. ") + (channel + 1))];
    return element("div", { style: `flex: ${width} 1 0` }, ...ends);
  }));
  const counts = new Map();
  drawnLayers().forEach((layer) => counts.set(stageOf(layer), (counts.get(stageOf(layer)) || 0) + 1));
  byId("bands").replaceChildren(...[...counts].map(([k, lines]) => {
    const band = element("button", { type: "button", class: "s" + (k % 4), title: `${k + 1}. ${stages[k].name}`, "aria-label": `show stage ${k + 1}, ${stages[k].name}`, style: `flex-grow: ${lines}` }, (lines / count) * height > 15 ? String(k + 1) : "");
    band.addEventListener("click", () => player.go(shown.findIndex((step) => step.chapter === k + 1)));
    return band;
  }));
  byId("stage-names").replaceChildren(...stages.map((stage, k) => element("span", {}, element("i", { class: "s" + (k % 4) }), `${k + 1} ${stage.name}`)));
}
// The layer of the step in view is highlighted.
function mark() {
  const bar = byId("here"), layer = stepShown && stepShown.layer;
  bar.hidden = layer === undefined || layer === null;
  if (bar.hidden) return;
  const share = layer / ends[ends.length - 1];
  bar.style.top = 100 * share + "%";
  bar.style.height = `max(3px, ${100 / ends[ends.length - 1]}%)`;
}
function point(event) {
  const box = byId("flow").getBoundingClientRect(), layers = drawnLayers();
  const layer = layers[Math.min(layers.length - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * layers.length)))];
  const k = stageOf(layer), z = trace()[layer];
  byId("pointed").textContent = `layer ${layer + 1} of ${ends[ends.length - 1]}, ${k + 1}. ${stages[k].name}: ${z.slice(0, 4).map((x) => numberText(x)).join(", ")}${z.length > 4 ? ", …" : ""}`;
  return shown.findIndex((step) => step.layer === layer);
}

// --- queries -------------------------------------------------------------------------------------------------------------
function offer(select, names) {
  const old = select.value;
  select.replaceChildren(...names.map(([label, value]) => new Option(label, value)));
  if (names.some(([, value]) => value === old)) select.value = old;
}
const background = () => (others ||= examples.flatMap((words) => {
  try { const row = engine.tokensOf(words), run = engine.evaluate(row); return [{ run, words: asWord(row), kind: memory.classes.indexOf(run.answers[0]), key: JSON.stringify(row.map(String)) }]; } catch { return []; }
}));
const tokensOfRow = () => last.answers.map((answer, k) => ({ run: last, which: k, words: asWord([last.row[k]]), kind: Math.max(0, memory.classes.indexOf(answer)), me: k === which() }));
function show() {
  const key = JSON.stringify(last.row.map(String)), kind = Math.max(0, memory.classes.indexOf(last.answers[which()]));
  const query = { memory, engine, run: last, row: last.row, which: which(), kind, others: perToken ? tokensOfRow() : background().map((o) => ({ ...o, me: o.key === key })) };
  const at = shown.length ? player.at : 0;
  shown = stepsOfRow(query).map((step) => ({ ...step, chapter: step.stage }));
  player.load(shown, chaptersOf(query), Math.min(at, shown.length - 1));
  drawBits();
  mark();
}
function run() {
  const text = byId("tokens").value, answer = byId("answer");
  if (!text.trim()) return;
  try {
    const row = engine.tokensOf(text);
    last = { ...engine.evaluate(row), row };
    answer.className = "";
    answer.textContent = perToken ? "answers: " + last.answers.map((one) => (one === null ? "none" : one)).join(" · ") : answerWords(last.answers[0]);
    if (perToken) offer(byId("place"), row.map((token, k) => [k + 1 + ": " + engine.show(token), String(k)]));
    const widest = Math.max(...trace().map((z) => z.length));
    const first = !byId("channel").options.length;
    offer(byId("channel"), [["all", "all"], ...[...Array(widest).keys()].map((k) => [String(k + 1), String(k)])]);
    if (first && trace().slice(0, -1).every((z) => z.length === 1)) byId("channel").value = "0"; // only E_out gives more
    byId("trace").hidden = false;
    show();
  } catch (error) { // nothing of the row before stays in view
    last = null;
    byId("trace").hidden = true;
    byId("pointed").textContent = "\u00a0";
    answer.className = "error";
    answer.textContent = error.message;
  }
}

byId("run").addEventListener("click", run);
byId("tokens").addEventListener("keydown", (event) => { if (event.key === "Enter") run(); });
byId("channel").addEventListener("change", drawBits);
if (perToken) byId("place").addEventListener("change", show);
byId("flow").addEventListener("pointermove", (event) => { if (last) point(event); });
byId("flow").addEventListener("click", (event) => { if (last) player.go(point(event)); });
window.addEventListener("beforeprint", () => byId("printed").replaceChildren(...printedSteps(last ? shown : [], answerWords)));
window.addEventListener("afterprint", () => byId("printed").replaceChildren());
if (byId("example")) byId("example").addEventListener("change", () => { byId("tokens").value = byId("example").value; run(); });
run();
