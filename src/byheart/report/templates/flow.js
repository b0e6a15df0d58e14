"use strict";
(() => {
  const memory = JSON.parse(document.getElementById("memory").textContent);
  const { network, encoder, classes } = memory;
  // A number is m·2^e as [m, e]; q scales the whole stream where a mean did not come out whole.
  const number = (w) => {
    if (typeof w === "number") return [BigInt(w), 0];
    const [, sign, digits, power] = /^(-?)(0x[0-9a-f]+)(?:p(-?\d+))?$/.exec(w);
    return [sign ? -BigInt(digits) : BigInt(digits), Number(power || 0)];
  };
  const add = ([a, e], [b, f]) => (e === f ? [a + b, e] : e < f ? [a + (b << BigInt(f - e)), e] : [(a << BigInt(e - f)) + b, f]);
  const mul = ([a, e], [b, f]) => [a * b, e + f];
  const relu = (x) => (x[0] > 0n ? x : [0n, 0]);
  const tidy = ([m, e]) => { while (e < 0 && m !== 0n && (m & 1n) === 0n) { m >>= 1n; e++; } if (m === 0n) e = 0; if (e > 0) { m <<= BigInt(e); e = 0; } return [m, e]; };
  const times = (matrix, z) => matrix.rows.map((row) => row.reduce((sum, [j, w]) => add(sum, mul(number(w), z[j])), [0n, 0]));
  const scaled = (b, q) => mul(number(b), [q, 0]);

  function encode(tokens) {
    const points = tokens.map((t) => {
      if (encoder.symbols === null) return (Array.isArray(t) ? t : [t]).map(exact);
      const code = encoder.symbols.findIndex((s) => s === t) + 1;
      if (!code) throw new Error("the memory has never seen the token " + JSON.stringify(t));
      return [[BigInt(code), 0]];
    });
    const pads = ["next-token", "seq-to-seq"].includes(encoder.task);
    if (pads && encoder.padded) {
      const pad = encoder.symbols === null ? encoder.pad_vector.map(number) : [[0n, 0]];
      while (points.length < encoder.length) points.unshift(pad);
    }
    return encoder.positions ? points.map((p, k) => [...p, [BigInt(k), 0]]) : points;
  }
  function exact(x) { let e = 0; while (!Number.isInteger(x)) { x *= 2; e--; } return [BigInt(x), e]; }

  const layerFunctions = {
    affine: (s, l) => { s.Z = s.Z.map((z) => times(l.weight, z).map((a, i) => { const v = l.bias ? add(a, scaled(l.bias[i], s.q)) : a; return l.relu ? relu(v) : v; })); },
    residual: (s, l) => { s.Z = s.Z.map((z) => { const h = times(l.weight1, z).map((a, i) => relu(add(a, scaled(l.bias1[i], s.q)))); return times(l.weight2, h).map((a, i) => add(add(z[i], a), scaled(l.bias2[i], s.q))); }); },
    embedding: (s, l) => { s.Z = s.Z.map((z) => { const id = Number(z.reduce((sum, x, i) => sum + BigInt(l.strides[i]) * x[0], 0n)); const out = Array.from({ length: l.table.columns }, () => [0n, 0]); l.table.rows[id].forEach(([j, w]) => { out[j] = number(w); }); return out; }); },
    threshold: (s, l) => { s.Z = s.Z.map((z) => times(l.weight, z).map((a, i) => (add(a, scaled(l.bias[i], s.q))[0] >= 0n ? scaled(1, s.q) : [0n, 0]))); },
    flatten: (s) => { s.Z = [s.Z.flat()]; },
    pool: (s) => { s.Z = [s.Z.reduce((a, b) => a.map((x, i) => add(x, b[i])))]; },
    "global-token": (s, l) => { const z = l.stream.map((w) => scaled(w, s.q)); if (l.place === "start") s.Z.unshift(z); else { s.Z.push(z); s.hub = true; } },
    attention: attend,
  };
  function attend(s, l) {
    const n = s.Z.length, shares = [];
    for (const head of l.heads) {
      const V = s.Z.map((z) => times(head.output, times(head.value, z)));
      const K = head.key && s.Z.map((z) => times(head.key, z)), Q = head.query && s.Z.map((z) => times(head.query, z));
      for (let k = 0; k < n; k++) {
        let keys = [...Array(n).keys()].filter((j) => l.pattern === "full" || (l.pattern === "causal" && j <= k) || (l.pattern === "star-in" && (k === n - 1 || j === k)) || (l.pattern === "star-out" && (j === k || (k < n - 1 && j === n - 1))));
        if (K) {
          const score = keys.map((j) => tidy(K[j].reduce((sum, x, i) => add(sum, mul(x, Q[k][i])), [0n, 0])));
          const low = Math.min(...score.map((x) => x[1])), plain = score.map(([m, e]) => m << BigInt(e - low));
          const best = plain.reduce((a, b) => (a > b ? a : b));
          if (l.kind === "softmax" && plain.some((x) => x !== best)) throw new Error("softmax of unequal scores is no rational number");
          keys = keys.filter((_, i) => plain[i] === best);
        }
        shares.push([k, keys.map((j) => V[j]).reduce((a, b) => a.map((x, i) => add(x, b[i]))), BigInt(keys.length)]);
      }
    }
    const gcd = (a, b) => { while (b) [a, b] = [b, a % b]; return a; };
    const all = shares.map((x) => x[2]).reduce((a, b) => (a / gcd(a, b)) * b, 1n);
    s.Z = s.Z.map((z) => z.map((x) => mul(x, [all, 0])));
    for (const [k, sum, count] of shares) s.Z[k] = s.Z[k].map((x, i) => add(x, mul(sum[i], [all / count, 0])));
    s.q *= all;
    const whole = s.Z.every((z) => z.every(([m]) => m % all === 0n));
    if (whole) { s.Z = s.Z.map((z) => z.map(([m, e]) => [m / all, e])); s.q /= all; }
  }

  function evaluate(tokens) {
    const s = { Z: encode(tokens), q: 1n, hub: false }, trace = [];
    const read = () => { const k = network.read === "pooled" && s.Z.length === 1 ? 0 : s.Z.length - 1 - (s.hub ? 1 : 0); return s.Z[k]; };
    for (const l of network.layers) { layerFunctions[l.layer](s, l); s.Z = s.Z.map((z) => z.map(tidy)); trace.push(read()); }
    const out = read();
    let index = -1n;
    if (network.readout.decode === "value") { const [m, e] = out[0]; if (e === 0 && m % s.q === 0n) index = m / s.q - BigInt(network.readout.offset); }
    else { const low = Math.min(...out.map((x) => x[1])), plain = out.map(([m, e]) => m << BigInt(e - low)), best = plain.reduce((a, b) => (a > b ? a : b)); index = plain.filter((x) => x === best).length === 1 ? BigInt(plain.indexOf(best)) : -1n; }
    const known = index >= 0n && index < BigInt(network.readout.classes);
    return { trace, answer: known ? classes[Number(index)] : null };
  }

  const byId = (id) => document.getElementById(id);
  const short = ([m, e]) => { const hex = (m < 0n ? "-" : "") + (m < 0n ? -m : m).toString(m > -1000000n && m < 1000000n ? 10 : 16); const text = m > -1000000n && m < 1000000n ? hex : "0x" + hex.replace("-", ""); return (text.length > 18 ? text.slice(0, 9) + "…" + text.slice(-6) : text) + (e ? "·2^" + e : ""); };
  let last = null;

  // One column of dots per number of the stream, side by side; `all` shows every number, else the chosen one.
  function draw() {
    const chosen = byId("channel").value, canvas = byId("flow"), GAP = 3;
    const widest = Math.max(...last.trace.map((z) => z.length));
    const channels = chosen === "all" ? [...Array(Math.min(widest, 24)).keys()] : [Number(chosen)];
    const step = Math.max(1, Math.ceil(last.trace.length / 600)), rows = last.trace.filter((_, i) => i % step === 0);
    const columns = channels.map((c) => {
      const numbers = rows.map((z) => z[c] || [0n, 0]), low = Math.min(0, ...numbers.map((x) => x[1]));
      const texts = numbers.map(([m, e]) => (((m < 0n ? -m : m) << BigInt(e - low)).toString(2)));
      return { texts, width: Math.max(4, ...texts.map((t) => t.length)) };
    });
    const width = columns.reduce((sum, c) => sum + c.width + GAP, -GAP);
    canvas.width = Math.max(8, width); canvas.height = rows.length;
    canvas.style.height = Math.max(120, Math.min(600, rows.length * 5)) + "px";
    const context = canvas.getContext("2d"), style = getComputedStyle(document.body);
    context.clearRect(0, 0, canvas.width, rows.length);
    let left = 0;
    columns.forEach(({ texts, width: own }, c) => {
      context.fillStyle = style.getPropertyValue(c % 2 ? "--least" : "--measured").trim() || "#0969a8";
      texts.forEach((text, y) => { for (let i = 0; i < text.length; i++) if (text[i] === "1") context.fillRect(left + own - text.length + i, y, 1, 1); });
      left += own + GAP;
    });
  }

  function table() {
    const rows = ["<tr><th>after stage</th><th>numbers of the stream</th></tr>"];
    let place = 0;
    const names = network.stages.length ? network.stages : [["all layers", network.layers.length]];
    names.forEach(([name, count]) => { place += count; const cell = document.createElement("td"); cell.textContent = name; const z = last.trace[place - 1]; rows.push("<tr>" + cell.outerHTML + "<td>" + z.slice(0, 12).map(short).join(", ") + (z.length > 12 ? ", …" : "") + "</td></tr>"); });
    byId("trace").innerHTML = rows.join("");
  }

  function run() {
    const text = byId("tokens").value.trim();
    if (!text) return;
    try {
      const tokens = text.startsWith("[") ? JSON.parse(text) : [...text];
      last = evaluate(tokens);
      const shown = byId("answer");
      shown.className = ""; shown.textContent = last.answer === null ? "no answer: the output is no class" : "answer: " + last.answer;
      const widest = Math.max(...last.trace.map((z) => z.length)), select = byId("channel"), old = select.value;
      select.replaceChildren(new Option("all", "all"), ...[...Array(widest).keys()].map((k) => new Option(String(k + 1), String(k))));
      select.value = old && (old === "all" || Number(old) < widest) ? old : "all";
      draw(); table();
    } catch (error) { byId("answer").className = "error"; byId("answer").textContent = error.message; }
  }
  byId("run").addEventListener("click", run);
  byId("tokens").addEventListener("keydown", (event) => { if (event.key === "Enter") run(); });
  byId("channel").addEventListener("change", draw);
  const example = byId("example");
  if (example) example.addEventListener("change", () => { byId("tokens").value = example.value; run(); });
  run();
})();
