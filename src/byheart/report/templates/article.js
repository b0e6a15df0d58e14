// KS25 in one scroll. One network is followed from letters to a label; its numbers come from the evaluation of its layers.
// Then the cost of groups of K keys over K, and sizes over N. `state` holds the reader's choices; every figure is drawn
// from it again after each change and after each change of the page's width.
(() => {
  const byId = (id) => document.getElementById(id);
  const { story, sizes } = JSON.parse(byId("article-data").textContent);
  const engine = exactly(story.live), words = story.rows.map(({ word }) => word), letters = Object.keys(story.line), n = words[0].length;
  const runs = words.map((word) => engine.evaluate(engine.tokensOf(word)));
  const place = Object.fromEntries(story.stream.map((name, k) => [name, k]));
  const bits = (value, length) => BigInt(value).toString(2).padStart(length, "0");
  const shown = (count) => Number(count).toLocaleString("en"), about = (x) => (x < 100 ? x.toFixed(1) : shown(Math.round(x)));
  const state = { row: 0, removed: new Set(), step: 0, N: Math.max(0, sizes.grid.findIndex((N) => N >= 1e6)), K: 100, timer: null };
  const bag = (word) => [...word].sort().join("");
  const widthOf = (id) => Math.max(250, Math.floor(byId(id).clientWidth || 640));
  const put = (id, ...children) => byId(id).replaceChildren(...children);
  const cells = (kind, values, more = {}) => element("tr", more, ...values.map((value) => element(kind, {}, value)));
  const pressed = (name, on, act, more = {}) => { const button = element("button", { type: "button", "aria-pressed": String(on), ...more }, name); button.addEventListener("click", act); return button; };

  // --- words, letters, φ, sums ------------------------------------------------------------------------------------
  // The stream of every letter before attention, and of the last one after it.
  const before = () => runs[state.row].states[story.attention - 1], after = () => runs[state.row].states[story.attention][n - 1];
  function drawWords() {
    put("a-words", byId("a-words").firstElementChild, ...story.rows.map(({ word, label }, k) => pressed(word, k === state.row, () => { state.row = k; draw(); byId("a-words").querySelectorAll("button")[k].focus(); }, { title: "label: " + label })));
  }
  function drawLine() {
    const width = widthOf("a-line"), low = 0, high = Math.max(...Object.values(story.line)) + 2, x = (v) => 20 + ((v - low) / (high - low)) * (width - 40), word = words[state.row];
    const mine = new Map([...word].map((letter, k) => [letter, numberText(before()[k][place.x])]));
    put("a-line", picture(width, 92, `letters on a line; those of ${word} are marked`, svg("line", { class: "axis", x1: x(low), x2: x(high), y1: 50, y2: 50 }),
      ...letters.flatMap((letter) => { const at = x(story.line[letter]), me = mine.has(letter); return [svg("circle", { class: "dot" + (me ? " me" : ""), cx: at, cy: 50, r: 7 }), text(at, 32, letter, { class: "letter" + (me ? " me" : ""), "text-anchor": "middle" }), text(at, 80, mine.get(letter) ?? String(story.line[letter]), { class: "tick" + (me ? " me" : ""), "text-anchor": "middle" })]; })));
  }
  function drawPhi() {
    const chosen = letters.filter((letter) => story.phi[letter] > 0), bags = new Set(words.map(bag)).size;
    byId("a-count").textContent = `Here N = ${words.length} words have ${bags} different bags, and ${chosen.length} of ${letters.length} letters are enough.`;
    byId("a-given").textContent = chosen.map((letter) => `${letter} gets ${story.phi[letter]}`).join(", ") + ", all others 0";
    put("a-phi", byId("a-phi").firstElementChild, ...letters.map((letter) => {
      if (!story.phi[letter]) return element("span", { class: "zero" }, `${letter} 0`);
      const gone = state.removed.has(letter);
      return pressed(`${letter} ${gone ? 0 : story.phi[letter]}`, !gone, () => { if (gone) state.removed.delete(letter); else state.removed.add(letter); draw(); byId("a-phi").querySelector(`[data-letter=${letter}]`).focus(); }, { class: gone ? "gone" : "", "data-letter": letter, "aria-label": `φ of ${letter}: ${gone ? "deleted, restore" : story.phi[letter] + ", delete"}` });
    }));
  }
  const share = (letter) => (state.removed.has(letter) ? 0 : story.phi[letter]);
  function drawBars() {
    const width = widthOf("a-bars"), most = Math.max(...story.sums), left = 52, unit = (width - left - 40) / most, tall = 34;
    const sums = words.map((word) => [...word].reduce((sum, letter) => sum + share(letter), 0));
    const rows = words.flatMap((word, k) => {
      let at = left;
      const y = 8 + k * tall, parts = [...word].filter((letter) => share(letter) > 0).map((letter) => { const wide = share(letter) * unit, part = [svg("rect", { class: "seg " + colour(letters.indexOf(letter)), x: at, y, width: wide, height: 22, rx: 3 }), text(at + wide / 2, y + 16, letter, { class: "inbar", "text-anchor": "middle" })]; at += wide; return part; });
      return [text(4, y + 16, word, { class: "mono" + (k === state.row ? " tick me" : "") }), ...parts.flat(), text(at + 8, y + 16, String(sums[k]), { class: "tick" + (k === state.row ? " me" : "") })];
    });
    put("a-bars", picture(width, tall * words.length + 10, "the sum of φ of every word as a bar", ...rows));
    const clash = words.flatMap((word, k) => words.slice(k + 1).map((other, j) => [word, other, sums[k], sums[k + 1 + j]])).filter(([a, b, s, t]) => s === t && bag(a) !== bag(b));
    // Words with different last letters stay different contexts.
    const lost = clash.filter(([a, b]) => a[n - 1] === b[n - 1]), rest = clash.filter((pair) => !lost.includes(pair));
    const box = byId("a-clash");
    box.classList.toggle("clash", clash.length > 0);
    box.textContent = clash.length
      ? `Collision: ${[
          ...lost.map(([a, b, s]) => `${a} and ${b} both have the sum ${s} and end in ${a[n - 1]}: no later layer can distinguish them`),
          ...rest.map(([a, b, s]) => `${a} and ${b} both have the sum ${s}, only the last letter still distinguishes them`),
        ].join("; ")}. (The network below keeps all its numbers.)`
      : state.removed.size ? "No collision." : `The network’s own sum for ${words[state.row]} is ${numberText(after()[place.key])}. Different bags have different sums; tar and rat have one bag and one sum.`;
  }
  function drawKeys() {
    const { x: a, id: b } = story.weights, formula = `key = ${a === 1 ? "" : a + "·"}x + ${b}·sum ${story.bias < 0 ? "− " + -story.bias : "+ " + story.bias}`;
    put("a-keys", cells("th", ["word", "last letter", "x", "sum", formula, "label"]), ...words.map((word, k) => {
      const stream = runs[k].states[story.attention][n - 1], key = runs[k].traces[0][story.memory.start][place.x];
      return cells("td", [word, word[n - 1], numberText(stream[place.x]), numberText(stream[place.key]), numberText(key), story.rows[k].label], { class: k === state.row ? "me" : "" });
    }));
  }

  // --- the label memory ---------------------------------------------------------------------------------------------
  const { entries, key: keyBits, label: labelBits } = story.fields, groupCount = story.groups.length, scanned = entries * keyBits;
  const stream = (block, row = state.row) => runs[row].traces[0][story.memory.start + block];
  const value = (block, name, row) => stream(block, row)[place[name]];
  const blocks = story.memory.layers;
  // The word of keys that the trajectory u1 encodes while groups are searched: the integer part of u1·2^length.
  const fetched = (block, name, length) => { const z = value(Math.min(block, groupCount), name); return (z.n << BigInt(length)) / z.d; };
  const phase = (block) => (block === 0 ? "key" : block <= groupCount ? "group" : "scan");
  const classOf = (number) => story.live.classes[Number(number) - 1];
  function sentence(block) {
    const x = value(block, "x"), word = words[state.row], plain = (name) => numberText(value(block, name));
    if (block === 0) return `Block 1: the key of “${word}” is x = ${numberText(x)}.`;
    if (block <= groupCount) {
      const group = story.groups[block - 1], reached = compare(x, whole(group.first)) >= 0;
      return `Block ${block + 1}: group ${block} begins at key ${group.first}. x = ${numberText(x)} ${reached ? "has reached it: its words u and w are fetched." : "has not reached it: u and w stay as they are."}`;
    }
    const bit = block - groupCount, entry = Math.floor((bit - 1) / keyBits), t = (bit - 1) % keyBits + 1, old = block - 1;
    const head = bit <= scanned ? `The head reads bit ${bit} of u; the bit before it joins the key so far.` : "The strip is read.";
    let decided = "";
    if (entry > 0 && t === 2) decided = ` Entry ${entry} is complete: its key is ${numberText(value(old, "key"))}, its label ${numberText(value(old, "label"))}. The distance to x is ${plain("miss")}.`;
    if (entry > 0 && t === 3) decided = compare(value(old, "miss"), whole(0)) === 0 ? ` Distance 0: the gate is open, and the answer becomes ${plain("y")}, “${classOf(value(block, "y").n)}”.` : ` Distance ${numberText(value(old, "miss"))}: the gate stays shut, and the label ${numberText(value(old, "pending"))} does not pass.`;
    return `Block ${block + 1}: ${head}${decided}`;
  }
  const NAMES = [["key x", "x"], ["bits still to read", null], ["key so far", "key"], ["label so far", "label"], ["distance of x from the key", "miss"], ["label at the gate", "pending"], ["answer", "y"]];
  function numbersAt(block) {
    const bit = Math.min(scanned, Math.max(0, block - groupCount)), u = bits(fetched(block, "u1", scanned), scanned);
    return NAMES.map(([, name]) => (name === null ? (block === 0 ? "none yet" : u.slice(bit) || "none") : numberText(value(block, name))));
  }
  function drawStrip() {
    const width = widthOf("a-strip"), block = state.step, bit = block - groupCount, left = 22, cell = Math.min(44, (width - left - 6) / scanned), boxes = 62;
    const each = (width - 8) / groupCount, x = value(block, "x"), now = story.groups.reduce((found, group, k) => (compare(x, whole(group.first)) >= 0 ? k : found), -1);
    const groups = story.groups.flatMap((group, k) => [svg("rect", { class: "group" + (block > 0 && k === Math.min(now, block - 1) ? " me" : ""), x: 4 + k * each, y: 4, width: each - 8, height: 46, rx: 7 }), text(4 + k * each + (each - 8) / 2, 23, `group ${k + 1}`, { class: "tick", "text-anchor": "middle" }), text(4 + k * each + (each - 8) / 2, 42, story.rows.map((_, row) => numberText(value(0, "x", row))).filter((key) => group.first <= key && key <= group.last).join(", "), { class: "mono", "text-anchor": "middle" })]);
    const strip = (name, word, length, per, y) => [...word].flatMap((digit, k) => {
      const entry = Math.floor(k / per), at = left + (entry * keyBits + (k % per)) * cell, current = bit > 0 && bit <= scanned && Math.floor((bit - 1) / keyBits) === entry && (bit - 1) % keyBits === k % per, read = bit > 0 && (entry < Math.floor((bit - 1) / keyBits) || (entry === Math.floor((bit - 1) / keyBits) && k % per <= (bit - 1) % keyBits));
      return [svg("rect", { class: "bit" + (read ? " read" : "") + (current ? " now" : ""), x: at, y, width: cell - 2, height: 28, rx: 4 }), text(at + cell / 2 - 1, y + 20, block === 0 ? "·" : digit, { class: "mono", "text-anchor": "middle" })];
    });
    const u = bits(fetched(block, "u1", scanned), scanned), w = bits(fetched(block, "w1", entries * labelBits), entries * labelBits), headX = left + (Math.min(scanned, bit) - 0.5) * cell - 1;
    const fences = [...Array(entries - 1).keys()].map((k) => svg("line", { class: "fence", x1: left + (k + 1) * keyBits * cell - 1, x2: left + (k + 1) * keyBits * cell - 1, y1: boxes + 18, y2: boxes + 92 }));
    put("a-strip", picture(width, boxes + 100, `groups, and the strips u and w with the reading head at block ${block + 1}`, ...groups,
      text(4, boxes + 42, "u", { class: "mono" }), ...strip("u", u, scanned, keyBits, boxes + 22), text(4, boxes + 78, "w", { class: "mono" }), ...strip("w", w, entries * labelBits, labelBits, boxes + 58), ...fences,
      ...(bit > 0 && bit <= scanned ? [svg("path", { class: "head", d: `M ${headX - 8} ${boxes + 4} h 16 l -8 14 z` })] : [])));
    byId("a-now").textContent = sentence(block);
    const values = numbersAt(block);
    put("a-named", ...NAMES.map(([name], k) => element("tr", { class: name === "answer" && values[k] !== "0" ? "me" : "" }, element("th", { scope: "row" }, name), element("td", { class: "num" }, name === "answer" && values[k] !== "0" ? `${values[k]}: ${classOf(values[k])}` : values[k]))));
    const slider = byId("a-step");
    slider.max = blocks - 1;
    slider.value = block;
    slider.setAttribute("aria-valuetext", `block ${block + 1} of ${blocks}`);
    byId("a-back").disabled = block === 0;
    byId("a-next").disabled = block === blocks - 1;
  }
  function drawTable() {
    put("a-table", cells("th", ["block", ...NAMES.map(([name]) => name)]), ...[...Array(blocks).keys()].map((block) => cells("td", [String(block + 1), ...numbersAt(block)], { class: block === state.step ? "me" : "" })));
  }
  const stop = () => { clearInterval(state.timer); state.timer = null; byId("a-play").setAttribute("aria-pressed", "false"); byId("a-play").textContent = "play"; };
  const step = (to) => { state.step = Math.max(0, Math.min(blocks - 1, to)); drawStrip(); drawTable(); };
  byId("a-back").addEventListener("click", () => { stop(); step(state.step - 1); });
  byId("a-next").addEventListener("click", () => { stop(); step(state.step + 1); });
  byId("a-step").addEventListener("input", (event) => { stop(); step(Number(event.target.value)); });
  byId("a-play").addEventListener("click", () => {
    if (state.timer !== null) { stop(); return; }
    if (state.step === blocks - 1) step(0);
    byId("a-play").setAttribute("aria-pressed", "true");
    byId("a-play").textContent = "pause";
    state.timer = setInterval(() => { step(state.step + 1); if (state.step === blocks - 1) stop(); }, 1100);
  });

  // --- the cost of groups of K keys -----------------------------------------------------------------------------------
  // The blocks of one memory: 1 to compute the key, one per group, one per bit of a group, 3 to finish.
  const cost = (N, K, rho) => 1 + Math.ceil(N / K) + K * rho + 3;
  function cheapest(N, rho) {
    const near = Math.sqrt(N / rho);
    let best = 1;
    for (let K = Math.max(1, Math.floor(near / 2)); K <= Math.min(N, Math.ceil(near * 2) + 1); K++) if (cost(N, K, rho) < cost(N, best, rho)) best = K;
    return best;
  }
  const chosenK = (N) => Math.max(1, Math.min(N, Math.round(N ** (state.K / 200))));
  // Logarithmic axes: x and y map a number to pixels, `ticks` draws powers of ten.
  function logAxes(width, height, xs, ys, across, upwards) {
    const left = 46, bottom = 40, right = 18, top = 26, span = (v, [low, high]) => (Math.log10(v) - Math.log10(low)) / (Math.log10(high) - Math.log10(low));
    const x = (v) => left + span(v, xs) * (width - left - right), y = (v) => height - bottom - span(v, ys) * (height - bottom - top);
    const powers = ([low, high], most) => { const from = Math.ceil(Math.log10(low) - 1e-9), to = Math.floor(Math.log10(high) + 1e-9), by = Math.max(1, Math.ceil((to - from) / most)); return [...Array(to - from + 1).keys()].map((k) => from + k).filter((k) => (k - from) % by === 0); };
    const name = (k) => (k < 4 ? String(10 ** k) : "10" + [...String(k)].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]).join(""));
    const grid = [...powers(xs, width < 500 ? 5 : 10).flatMap((k) => [svg("line", { class: "grid", x1: x(10 ** k), x2: x(10 ** k), y1: top, y2: height - bottom }), text(x(10 ** k), height - bottom + 17, name(k), { class: "tick", "text-anchor": "middle" })]), ...powers(ys, 6).flatMap((k) => [svg("line", { class: "grid", x1: left, x2: width - right, y1: y(10 ** k), y2: y(10 ** k) }), text(left - 5, y(10 ** k) + 4, name(k), { class: "tick", "text-anchor": "end" })]), text(width - right, height - 6, across, { class: "tick", "text-anchor": "end" }), text(2, 14, upwards, { class: "tick" })];
    const line = (points, kind) => svg("polyline", { class: "line " + kind, points: points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ") });
    return { x, y, grid, line, left, right, top, bottom };
  }
  function drawCost() {
    const N = sizes.grid[state.N], rho = sizes.bits[state.N], K = chosenK(N), best = cheapest(N, rho), width = widthOf("a-cost"), height = 260;
    byId("a-N-shown").textContent = "N = " + shown(N);
    byId("a-K-shown").textContent = "K = " + shown(K);
    const Ks = [...new Set([...Array(81).keys()].map((k) => Math.max(1, N ** (k / 80))))], most = Math.max(N, N * rho), axes = logAxes(width, height, [1, Math.max(N, 10)], [1, most * 1.3], "keys per group K →", "blocks ↑");
    put("a-cost", picture(width, height, `blocks against keys per group for N = ${N}`, ...axes.grid,
      axes.line(Ks.filter((k) => N / k >= 1).map((k) => [k, N / k]), "c0 dotted"), axes.line(Ks.map((k) => [k, k * rho]), "c1 dotted"), axes.line(Ks.map((k) => [k, N / k + k * rho]), "c4"),
      svg("line", { class: "where", x1: axes.x(best), x2: axes.x(best), y1: axes.top, y2: height - axes.bottom }), svg("circle", { class: "point c4", cx: axes.x(K), cy: axes.y(N / K + K * rho), r: 6 }),
      text(Math.min(Math.max(axes.x(best), 140), width - 100), axes.top - 6, `minimum at K = ${shown(best)}`, { class: "tick me", "text-anchor": "middle" }), text(axes.left + 8, axes.y(N) + 20, "N/K", { class: "tick name c0" }), text(width - axes.right - 8, axes.y(N * rho) + 24, "K·ρ", { class: "tick name c1", "text-anchor": "end" })));
    byId("a-cost-words").textContent = `N = ${shown(N)} rows, keys of ρ = ${rho} bits. Groups of K = ${shown(K)}: ${shown(Math.ceil(N / K))} groups + ${shown(K * rho)} bits + 4 = ${shown(cost(N, K, rho))} blocks. The minimum is K = ${shown(best)} with ${shown(cost(N, best, rho))} blocks; √(N/ρ) = ${about(Math.sqrt(N / rho))}, 2·√(N·ρ) = ${about(2 * Math.sqrt(N * rho))}.`;
  }
  // --- sizes over N ---------------------------------------------------------------------------------------------------
  const power = (N) => { const k = Math.floor(Math.log10(N)); return `${(N / 10 ** k).toFixed(1)}·10${[...String(k)].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]).join("")}`; };
  const SERIES = [["one bend per row", "linear", 0], ["Theorem 4.1, guaranteed", "theorem", 3], ["lower bound", "lower", 7]], DOTS = [["ks25, built", "ks25", 4], ["compact, built", "compact", 2]];
  // Where the lines are named if the chart is wide enough: words, colour, N, height, offset in pixels, anchor.
  const at = (name, N) => (grid, all) => all[name][grid.findIndex((one) => one >= N)];
  const NAMED = [["one bend per row", 0, 3e8, at("linear", 3e8), -12, 0, "end"], ["Theorem 4.1", 3, 10, at("theorem", 10), 4, -16, "start"], ["lower bound", 7, 1e7, at("lower", 1e7), 0, 20, "start"], ["compact, built", 2, sizes.built.compact.at(-1)[0], () => sizes.built.compact.at(-1)[1], 10, 4, "start"]];
  function drawGrowth() {
    const { grid } = sizes, width = widthOf("a-growth"), height = 340, axes = logAxes(width, height, [grid[0], grid[grid.length - 1]], [1, Math.max(...sizes.linear, ...sizes.theorem)], "rows N →", "parameters ↑"), N = grid[state.N];
    const crossAt = sizes.crossing, own = sizes.built_crossing, cross = (at, words, low) => [svg("circle", { class: "cross", cx: axes.x(at), cy: axes.y(3 * at + 8), r: 8 }), text(low ? Math.min(axes.x(at) + 12, width - 7.2 * words.length) : Math.max(axes.x(at) - 12, 7.2 * words.length), axes.y(3 * at + 8) + (low ? 18 : -8), words, { class: "tick me", "text-anchor": low ? "start" : "end" })];
    put("a-growth", picture(width, height, "parameters against rows, logarithmic axes", ...axes.grid, svg("line", { class: "where", x1: axes.x(N), x2: axes.x(N), y1: axes.top, y2: height - axes.bottom }),
      ...SERIES.map(([, name, k]) => axes.line(grid.map((one, i) => [one, sizes[name][i]]), colour(k) + (name === "lower" ? " dotted" : ""))), ...DOTS.flatMap(([, name, k]) => [axes.line(sizes.built[name], colour(k)), ...sizes.built[name].map(([one, size]) => svg("circle", { class: "point " + colour(k), cx: axes.x(one), cy: axes.y(size), r: 4 }))]),
      ...cross(crossAt, `Theorem 4.1: ${power(crossAt)}`, false), ...(own ? cross(own.at, `ks25 as built: ${power(own.at)}`, true) : []), ...(width < 560 ? [] : NAMED.map(([words, k, N, size, dx, dy, anchor]) => text(axes.x(N) + dx, axes.y(size(grid, sizes)) + dy, words, { class: "tick name " + colour(k), "text-anchor": anchor })))));
    byId("a-crossing").textContent = `With the paper’s constants, Theorem 4.1 wins from about ${power(crossAt)} rows on: the curves meet at N = ${shown(crossAt)}. ${own ? `As built, ks25 wins from about ${power(own.at)} rows on (between the builds of ${shown(own.before)} and ${shown(own.after)} rows).` : `As built, ks25 is above the line at ${shown(sizes.built.ks25.at(-1)[0])} rows, the largest build.`} compact is below the line from ${shown(firstBelow())} rows on.`;
    const line = ([name, , k], size) => element("tr", {}, element("td", { class: colour(k) }, element("span", { class: "swatch" }), name), element("td", { class: "num" }, size));
    put("a-sizes", element("tr", {}, element("th", {}, `parameters for N = ${shown(N)}`), element("th", {}, "")), ...SERIES.map((one) => line(one, shown(sizes[one[1]][state.N]))), ...DOTS.map((one) => { const near = [...sizes.built[one[1]]].sort((a, b) => Math.abs(Math.log(a[0] / N)) - Math.abs(Math.log(b[0] / N)))[0]; return line(one, `${shown(near[1])} (N = ${shown(near[0])})`); }));
  }
  const firstBelow = () => sizes.built.compact.find(([N, size], k, all) => all.slice(k).every(([M, s]) => s < 3 * M + 8))[0];
  byId("a-N").max = sizes.grid.length - 1;
  byId("a-N").value = state.N;
  byId("a-N").addEventListener("input", (event) => { state.N = Number(event.target.value); drawCost(); drawGrowth(); });
  byId("a-K").value = state.K;
  byId("a-K").addEventListener("input", (event) => { state.K = Number(event.target.value); drawCost(); });
  byId("a-best").addEventListener("click", () => { const N = sizes.grid[state.N]; state.K = 200 * Math.log(cheapest(N, sizes.bits[state.N])) / Math.log(N); byId("a-K").value = state.K; drawCost(); });

  function draw() { drawWords(); drawLine(); drawPhi(); drawBars(); drawKeys(); drawStrip(); drawTable(); drawCost(); drawGrowth(); }
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (Math.abs(now - width) > 4) { width = now; draw(); }
  }).observe(byId("one-scroll"));
  // A page around it may give it the height that it needs, and its light or dark scheme; nothing else is sent or received.
  if (self !== top) {
    const send = () => parent.postMessage({ byheart: "height", height: document.documentElement.scrollHeight }, "*");
    addEventListener("message", ({ source, data }) => {
      if (source !== parent || data?.byheart !== "scheme" || !["light", "dark"].includes(data.scheme)) return;
      const first = document.documentElement.dataset.scheme === undefined;
      document.documentElement.dataset.scheme = data.scheme;
      if (first) send(); // the page around it may have missed the height
    });
    new ResizeObserver(send).observe(document.body);
  }
  // On paper the head cannot move: it is drawn after the first key, and the table shows every block.
  let untouched = false;
  window.addEventListener("beforeprint", () => { stop(); byId("a-all").open = true; untouched = state.step === 0; if (untouched) step(groupCount + keyBits); });
  window.addEventListener("afterprint", () => { if (untouched) step(0); });
  draw();
})();
