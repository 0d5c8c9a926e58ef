(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  const source = document.getElementById("data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const { memories, entries, lanes, relations, types } = data;
  const $ = (id) => document.getElementById(id);
  const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g;
  const visible = (text) => text.replace(HIDDEN, (c) => "\u27e6U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e7");

  function make(tag, attributes = {}, ...children) {
    const svg = ["svg", "g", "rect", "path", "text", "line", "circle", "title"].includes(tag);
    const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
    e.append(...children.map((c) => (typeof c === "string" ? visible(c) : c)));
    return e;
  }

  // ---- what stands where, from a point of view --------------------------------------------------------------

  const view = { mode: "now", seq: data.version, day: 0 };

  // Place of a memory after update `seq`, and the move that put it there.
  function at(m, seq) {
    if (m.seq > seq) return { place: "absent", move: null };
    let move = null;
    for (const t of m.moves) if (t.seq <= seq) move = t;
    return { place: move ? move.to.toLowerCase() : "active", move };
  }

  const reached = (moment, day) => (!moment ? "unknown" : moment[1] <= day ? "yes" : moment[0] > day ? "no" : "unknown");

  // What the known dates say of a day: held, ended, ahead, perhaps; never = was corrected.
  function on(m, day) {
    const last = m.moves.length ? m.moves[m.moves.length - 1] : null;
    if (last && last.to === "HISTORY" && last.reason === "CORRECTED") return "never";
    const begun = reached(m.begun, day), over = m.ends.map((e) => reached(e, day));
    if (over.includes("yes")) return "ended";
    if (begun === "no") return "ahead";
    return begun === "yes" && over.every((o) => o === "no") ? "held" : "perhaps";
  }

  // {look, move}: look is active, history, never, ahead, perhaps, deleted or absent.
  function stand(m) {
    const { place, move } = at(m, view.mode === "seq" ? view.seq : data.version);
    if (view.mode !== "date" || place === "deleted" || place === "absent") {
      return { look: place === "history" && move.reason === "CORRECTED" ? "never" : place, move };
    }
    const found = on(m, view.day);
    return { look: { held: "active", ended: "history" }[found] || found, move };
  }

  // ---- filters ----------------------------------------------------------------------------------------------

  const wanted = { words: [], kind: "", holds: false };
  const KINDS = { STATE: "States", EVENT: "Events", PLAN: "Plans", PREFERENCE: "Preferences", BACKGROUND: "Background", DELETED: "Deleted" };
  for (const kind of Object.keys(KINDS)) {
    if (memories.some((m) => m.kind === kind)) $("kind").append(make("option", { value: kind }, KINDS[kind]));
  }
  const searched = memories.map((m) => {
    const lane = lanes[m.lane];
    return (m.text + " " + m.label + (lane ? " " + lane.name + " " + lane.what + " " + lane.group : " deleted")).toLowerCase();
  });
  function fits(i, look) {
    const m = memories[i];
    return look !== "absent" && (!wanted.kind || m.kind === wanted.kind) && (!wanted.holds || look === "active")
      && wanted.words.every((w) => searched[i].includes(w));
  }

  // ---- time to pixels ---------------------------------------------------------------------------------------

  const EPOCH = 719163, DAY = 86400000; // ordinal of 1970-01-01
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const calendar = (day) => new Date((day - EPOCH) * DAY);
  const words = (day) => { const d = calendar(day); return `${d.getUTCDate()} ${MONTHS[d.getUTCMonth()]} ${d.getUTCFullYear()}`; };
  const days = data.days || [0, 1];
  const pad = Math.max(3, Math.round((days[1] - days[0]) * 0.03));
  const full = [days[0] - pad, days[1] + pad * 2];
  // The time that is shown first is that of the entries: a single "since 1980" would press all else into a corner.
  const dated = entries.filter((e) => e.day).flatMap((e) => e.day);
  const begin = dated.length ? Math.min(...dated) : days[0];
  const finish = Math.max(begin + 1, ...dated, ...memories.filter((m) => m.begun).map((m) => m.begun[1]));
  const room = Math.max(7, Math.round((finish - begin) * 0.06));
  const usual = [Math.max(full[0], begin - room), Math.min(full[1], finish + room * 2)];
  let shown = [...usual], width = 600;
  view.day = finish;
  const undated = memories.some((m) => !m.begun && !m.ends.some(Boolean)) || entries.some((e) => !e.day);
  const gutter = () => (undated ? Math.min(84, width * 0.2) : 0);
  const x = (day) => gutter() + ((day - shown[0]) / (shown[1] - shown[0])) * (width - gutter());

  function ticks() {
    const span = shown[1] - shown[0], room = Math.max(2, Math.floor((width - gutter()) / 72));
    const months = [1, 2, 3, 6, 12, 24, 60, 120, 240].find((n) => span / (30.44 * n) <= room) || 600;
    const out = [];
    if (span / room < 16) {
      const step = [1, 2, 7, 14].find((n) => span / n <= room) || 14;
      for (let d = Math.ceil(shown[0] / step) * step; d <= shown[1]; d += step) out.push([d, words(d).replace(/ \d+$/, "")]);
      return out;
    }
    const first = calendar(shown[0]);
    for (let n = Math.floor((first.getUTCFullYear() * 12 + first.getUTCMonth()) / months) * months; ; n += months) {
      const day = Math.round(Date.UTC(Math.floor(n / 12), n % 12, 1) / DAY) + EPOCH;
      if (day > shown[1]) return out;
      if (day >= shown[0]) out.push([day, months < 12 ? `${MONTHS[n % 12]} ${Math.floor(n / 12)}` : String(Math.floor(n / 12))]);
    }
  }

  // ---- drawing ----------------------------------------------------------------------------------------------

  const ROW = 25, HIGH = 17;
  const members = lanes.map(() => []);
  const tombs = [];
  memories.forEach((m, i) => (m.lane < 0 ? tombs : members[m.lane]).push(i));
  const trackOf = lanes.map((_, i) => $("lane-" + i).querySelector(".track"));
  const nowOf = lanes.map((_, i) => $("lane-" + i).querySelector(".now"));
  lanes.forEach((_, i) => i > 24 && $("lane-" + i).classList.add("far"));
  let chosen = -1, chosenEntry = -1, order = [];
  const pen = document.createElement("canvas").getContext("2d"), measured = new Map();
  pen.font = "12px " + getComputedStyle(document.body).fontFamily;
  function long(text) {
    if (!measured.has(text)) measured.set(text, pen.measureText(visible(text)).width);
    return measured.get(text);
  }

  // [x1, x2, open] of a bar; null where nothing is known of its time.
  function extent(m, look, move) {
    let ends = m.ends;
    if (view.mode === "seq" && move) ends = move.to === "HISTORY" ? move.ends : m.until ? m.ends : [];
    else if (view.mode === "seq") ends = m.until ? m.ends : [];
    const known = ends.filter(Boolean).map((e) => e[0]);
    if (!m.begun && !known.length) return null;
    const open = !known.length && ["active", "perhaps", "ahead"].includes(look);
    const start = m.begun ? m.begun[0] : Math.min(...known) - (shown[1] - shown[0]) * 0.04;
    const end = known.length ? Math.min(...known) : open ? full[1] : start;
    return [x(start), Math.max(x(end), x(start)), open];
  }

  function draw() {
    const marks = ticks();
    axis(marks);
    notes();
    order = [];
    let any = false;
    lanes.forEach((lane, l) => {
      const items = members[l].map((i) => ({ i, m: memories[i], ...stand(memories[i]) })).filter((o) => fits(o.i, o.look));
      $("lane-" + l).hidden = !items.length;
      any = any || items.length > 0;
      order.push(...lay(trackOf[l], items));
      head(l, items);
    });
    const box = $("lane-deleted");
    if (box) {
      const items = tombs.map((i) => ({ i, m: memories[i], ...stand(memories[i]) })).filter((o) => fits(o.i, o.look));
      box.hidden = !items.length;
      any = any || items.length > 0;
      order.push(...lay(box.querySelector(".track"), items));
    }
    $("nothing").hidden = any;
    document.querySelectorAll("h2.group").forEach((h) => {
      let e = h.nextElementSibling, seen = false;
      for (; e && e.classList.contains("lane"); e = e.nextElementSibling) seen = seen || !e.hidden;
      h.hidden = !seen;
    });
    graph();
    mark();
  }

  function axis(marks) {
    const base = $("timeline").getBoundingClientRect(), from = $("axis").getBoundingClientRect();
    const left = from.left - base.left, top = $("axis").parentElement.offsetTop, tall = "100%";
    const lines = [];
    if (undated) lines.push(make("rect", { class: "gutter", x: left, y: top, width: Math.max(0, gutter() - 6), height: tall }));
    for (const [day] of marks) lines.push(make("line", { class: "grid", x1: left + x(day), x2: left + x(day), y1: top, y2: tall }));
    if (view.mode === "date") lines.push(make("line", { class: "now-line", x1: left + x(view.day), x2: left + x(view.day), y1: top, y2: tall }));
    $("grid").replaceChildren(...lines);
    const svg = make("svg", { height: 26, width: "100%" });
    if (undated) svg.append(make("text", { x: 2, y: 17 }, "no date"));
    for (const [day, text] of marks) if (x(day) < width - 20) svg.append(make("text", { x: x(day) + 3, y: 17 }, text));
    $("axis").replaceChildren(svg);
  }

  function notes() {
    if (!$("notes")) return;
    const svg = make("svg", { height: 30, width: "100%" });
    let loose = 8;
    entries.forEach((e, i) => {
      if (view.mode === "seq" && e.seq > view.seq) return;
      const px = e.day ? x(e.day[0]) : (loose += 10) - 10;
      if (px < -5 || px > width + 5) return;
      const g = make("g", { class: "item", "data-entry": i, role: "button", tabindex: -1, "aria-label": visible(`${e.kind}, ${e.date}`) });
      g.append(make("circle", { class: "note-dot", cx: px, cy: 15, r: 4.5 }), make("rect", { x: px - 7, y: 2, width: 14, height: 26, fill: "transparent" }));
      svg.append(g);
    });
    $("notes").querySelector(".track").replaceChildren(svg);
  }

  function head(l, items) {
    const held = items.filter((o) => o.look === "active").sort((a, b) => (b.m.begun || [0])[0] - (a.m.begun || [0])[0] || b.m.seq - a.m.seq);
    const box = nowOf[l];
    box.replaceChildren();
    if (held.length) {
      const since = view.mode === "date" || held[0].m.since === "date unknown" ? "" : ` since ${held[0].m.since}`;
      const said = [...new Set(held.map((o) => o.m.label))];
      box.append(make("b", {}, said.slice(0, 3).join(", ")), said.length > 3 ? ` and ${said.length - 3} more` : since);
    } else if (items.length) {
      const last = items.filter((o) => o.move).sort((a, b) => b.move.seq - a.move.seq)[0];
      box.append(view.mode === "date" ? "nothing is known to have held" : "no longer holds" + (last && last.move.successor === null ? ": " + last.move.words : ""));
    }
  }

  // Bars of one lane, packed into rows; returns the memories in the order in which the keys walk.
  function lay(track, items) {
    const left = gutter();
    let loose = 0;
    for (const o of items) {
      const span = o.look === "deleted" && o.m.begun ? [x(o.m.begun[0]), x(o.m.begun[0]), false] : extent(o.m, o.look, o.move);
      o.dated = !!span;
      [o.x1, o.x2, o.open] = span || [4 + 16 * (loose++ % 4), 0, false];
      o.point = !o.dated || o.m.kind === "EVENT" || o.look === "deleted";
      if (o.point) o.x2 = o.x1 + 11;
      o.x2 = Math.max(o.x2, o.x1 + 9);
      if (o.dated) { o.off = o.x2 < left || o.x1 > width; o.early = o.x1 < left - 3; o.x1 = Math.max(o.x1, left - 3); }
      o.words = o.m.label + (o.move && o.move.to === "HISTORY" && o.move.successor === null && view.mode !== "date" ? `, ${o.move.words}` : "");
    }
    items = items.filter((o) => !o.off).sort((a, b) => a.x1 - b.x1 || a.m.seq - b.m.seq || a.i - b.i);
    let rows = pack(items, true);
    if (rows > 3) rows = pack(items, false);
    const height = Math.max(1, rows) * ROW + 8;
    const svg = make("svg", { height, width: "100%" });
    const placed = new Map(items.map((o) => [o.i, o]));
    for (const o of items) {
      const next = placed.get(o.move && o.move.to === "HISTORY" ? o.move.successor : -1);
      if (next && next.row === o.row && !o.point && Math.abs(next.x1 - o.x2) < 9) o.x2 = o.edge = Math.max(o.x1 + 4, next.x1 - 7);
      link(svg, o, next);
    }
    for (const o of items) svg.append(item(o));
    track.replaceChildren(svg);
    return items.map((o) => o.i);
  }

  // Gives each bar a row in which it is free, and says where its label stands. roomy: a label beside a bar keeps its
  // room, and opens a row where there is none; otherwise it is left out there. Returns the number of rows.
  function pack(items, roomy) {
    const free = [], last = [];
    for (const o of items) {
      const label = long(o.m.label), room = long(o.words), end = Math.min(o.x2, width);
      o.inside = !o.point && end - o.x1 > label + 13;
      o.said = o.inside && end - o.x1 < room + 13 ? o.m.label : o.words;
      o.left = roomy && !o.inside && o.x2 + room + 8 > width && o.x1 - room - 6 > gutter();
      o.text = o.inside || roomy;
      o.edge = o.inside || o.left || !roomy ? o.x2 : o.x2 + room + 6;
      const from = o.left ? o.x1 - room - 6 : o.x1;
      let row = free.findIndex((f) => f <= from + 3);
      if (row < 0) row = roomy || free.length < 12 ? free.length : free.indexOf(Math.min(...free));
      free[row] = o.edge + 3;
      o.row = row;
      o.before = last[row];
      last[row] = o;
      if (o.before) o.before.beyond = o.x1;
    }
    if (!roomy) {
      for (const o of items) {
        const room = long(o.words);
        if (!o.inside && (o.beyond || width) - o.x2 > room + 12) { o.text = true; o.edge = o.x2 + room + 6; }
      }
    }
    return free.length;
  }

  function link(svg, o, next) {
    if (!next || o.look === "absent") return;
    const y1 = 4 + o.row * ROW + HIGH / 2, y2 = 4 + next.row * ROW + HIGH / 2;
    if (y1 === y2) {
      if (next.x1 - o.edge > 8) svg.append(make("path", { class: "link", d: `M${o.edge} ${y1}H${next.x1 - 4}` }));
      if (next.x1 - o.x2 > -6) svg.append(make("path", { class: "head-of-link", d: `M${next.x1 - 5} ${y1 - 4}L${next.x1 + 1} ${y1}L${next.x1 - 5} ${y1 + 4}Z` }));
      return;
    }
    const down = y2 > y1 ? 1 : -1, turn = Math.min(Math.max(next.x1 + 5, o.x1 + 4), Math.max(next.x2 - 2, next.x1 + 3));
    const foot = y2 - (down * HIGH) / 2, under = y1 + (down * HIGH) / 2, edge = Math.min(o.edge, width);
    const d = turn >= edge ? `M${edge} ${y1}H${turn}V${foot}` : turn <= o.x2 ? `M${turn} ${under}V${foot}`
      : `M${o.x1 + 5.5} ${under}V${under + down * 4}H${turn}V${foot}`;
    svg.append(make("path", { class: "link", d }),
      make("path", { class: "head-of-link", d: `M${turn - 4} ${foot - down * 5}L${turn} ${foot + down}L${turn + 4} ${foot - down * 5}Z` }));
  }

  const LOOK = { active: "still holds", history: "held before", never: "corrected, was not so", ahead: "had not begun", perhaps: "not certain", deleted: "deleted", absent: "not known yet" };
  const look = (o) => (view.mode === "date" ? { active: "held", history: "was over" }[o.look] || LOOK[o.look] : LOOK[o.look]);

  function item(o) {
    const y = 4 + o.row * ROW, m = o.m;
    const kind = `${o.look} ${m.style === "affirmed" ? "" : m.style}`.trim();
    const g = make("g", { class: "item", "data-memory": o.i, role: "button", tabindex: -1, "aria-label": visible(`${m.text || "deleted"}; ${look(o)}`) });
    if (o.look === "deleted") g.append(make("path", { class: "tomb", d: `M${o.x1} ${y + 4}l10 10m0 -10l-10 10` }), make("rect", { x: o.x1 - 3, y, width: 18, height: HIGH, fill: "transparent" }));
    else if (o.point) g.append(make("circle", { class: `bar ${kind}`, cx: o.x1 + 5.5, cy: y + HIGH / 2, r: 5.5 }), make("rect", { x: o.x1 - 3, y: y - 2, width: 17, height: HIGH + 4, fill: "transparent" }));
    else g.append(make("rect", { class: `bar ${kind}`, x: o.x1, y, width: Math.max(3, Math.min(o.x2, width + 20) - o.x1), height: HIGH, rx: 3.5 }));
    if (o.early && !o.point) g.append(make("path", { class: `early ${kind}`, d: `M${o.x1 + 9} ${y + 4}l-5 4.5l5 4.5` }));
    if (o.look !== "deleted" && o.text) {
      const where = o.inside ? { x: o.x1 + (o.early ? 14 : 4) } : o.left ? { x: o.x1 - 5, "text-anchor": "end" } : { x: o.x2 + 5 };
      g.append(make("text", { class: `${o.inside ? "inside" : ""} ${kind} ${o.look === "never" ? "struck" : ""}`, y: y + 13, ...where }, o.said));
    }
    return g;
  }

  // ---- the chosen one ---------------------------------------------------------------------------------------

  const itemOf = (i) => document.querySelector(`.item[data-memory="${i}"]`);

  function mark() {
    document.querySelectorAll(".item.chosen, .item.near").forEach((e) => e.classList.remove("chosen", "near"));
    const lines = [];
    if (chosen >= 0) {
      const mine = itemOf(chosen);
      if (mine) mine.classList.add("chosen");
      for (const other of ties(chosen).map((t) => t.other).concat(chain(chosen))) {
        const e = other !== chosen && itemOf(other);
        if (!e) continue;
        e.classList.add("near");
        if (mine && memories[other].lane !== memories[chosen].lane) lines.push([mine, e]);
      }
    }
    if (chosenEntry >= 0) {
      const e = document.querySelector(`.item[data-entry="${chosenEntry}"]`);
      if (e) e.classList.add("chosen");
    }
    const base = $("timeline").getBoundingClientRect();
    const spot = (e) => { const b = e.querySelector(".bar, .tomb").getBoundingClientRect(); return [Math.min(b.left + Math.min(b.width / 2, 40), base.right - 14) - base.left, b.top + b.height / 2 - base.top, b.height]; };
    $("over").replaceChildren(...lines.slice(0, 24).filter(([, b]) => b.getClientRects().length).map(([a, b]) => {
      const [x1, y1] = spot(a), [x2, y2] = spot(b);
      return make("path", { d: `M${x1} ${y1}C${x1 - 30} ${(y1 + y2) / 2} ${x2 - 30} ${(y1 + y2) / 2} ${x2} ${y2}` });
    }));
  }

  const limit = () => (view.mode === "seq" ? view.seq : data.version);
  function ties(i) {
    const out = [];
    relations.forEach(([src, dst, type, seq, confidence, origin]) => {
      if (seq > limit() || (src !== i && dst !== i)) return;
      out.push({ other: src === i ? dst : src, words: types[type].words[src === i ? 0 : 1], type, confidence, origin });
    });
    return out.sort((a, b) => b.confidence - a.confidence);
  }
  const after = (i) => { const { place, move } = at(memories[i], limit()); return place === "history" && move.successor !== null ? move.successor : -1; };
  function chain(i) {
    const back = [], seen = new Set([i]);
    for (let j = i; ;) {
      const before = memories.findIndex((m, k) => !seen.has(k) && after(k) === j);
      if (before < 0) break;
      seen.add(before); back.unshift(before); j = before;
    }
    const out = [...back, i];
    for (let j = after(i); j >= 0 && !seen.has(j); j = after(j)) { seen.add(j); out.push(j); }
    return out;
  }

  const jump = (i, text) => make("button", { type: "button", class: "jump" + (i === chosen ? " here" : ""), "data-jump": i }, text || memories[i].text || "a deleted statement");

  // The text of an entry around marked places. spans: [start, end] in UTF-16, apart or not.
  function text(entry, spans) {
    const pre = make("pre", { tabindex: 0 });
    const cuts = [...new Set(spans.flat())].sort((a, b) => a - b);
    entry.pieces.forEach(([start, piece], n) => {
      const end = start + piece.length;
      if (n || start) pre.append(make("span", { class: "hint" }, " […] "));
      const edges = [start, ...cuts.filter((c) => c > start && c < end), end];
      for (let k = 0; k + 1 < edges.length; k++) {
        const part = piece.slice(edges[k] - start, edges[k + 1] - start);
        const inside = spans.some(([a, b]) => a <= edges[k] && edges[k + 1] <= b);
        pre.append(inside ? make("mark", {}, part) : visible(part));
      }
    });
    const last = entry.pieces[entry.pieces.length - 1];
    if (last && last[0] + last[1].length < entry.length) pre.append(make("span", { class: "hint" }, " […]"));
    return pre;
  }

  function proof(e, spans, more) {
    const status = e.status ? `; ${e.status}` : "";
    const box = make("div", { class: "source" }, make("p", {}, make("b", {}, e.kind), `, ${e.date}, by ${e.author} (${e.source}, update ${e.seq}${status})${more}`));
    box.append(text(e, spans));
    return box;
  }

  function settle(body) {
    $("panel-body").replaceChildren(...body);
    $("panel").classList.add("open");
    $("panel").scrollTop = 0;
    for (const pre of $("panel-body").querySelectorAll("pre")) {
      const first = pre.querySelector("mark");
      if (first) pre.scrollTop = Math.max(0, first.offsetTop - 60);
    }
  }

  function choose(i, { focus = false, scroll = false } = {}) {
    chosen = i; chosenEntry = -1;
    const m = memories[i], o = { ...stand(m) };
    const body = [];
    $("panel-kind").textContent = m.lane < 0 ? "Deleted" : visible(`${lanes[m.lane].name}${lanes[m.lane].what ? " · " + lanes[m.lane].what : ""}`);
    body.push(make("p", { class: "statement" }, m.text || "Nothing is left of what this statement said."));
    body.push(make("span", { class: "badge " + o.look }, look(o)), ...m.notes.map((n) => make("span", { class: "badge note" }, n)));
    body.push(make("p", { class: "hint" }, m.since === "date unknown" ? "date unknown" : (m.kind === "EVENT" ? "on " : "since ") + m.since, m.until ? (m.planned ? ", planned until " : ", until ") + m.until : "", `; learned with update ${m.seq}`));
    const moves = m.moves.filter((t) => t.seq <= limit());
    body.push(make("h3", {}, "Why it stands there"));
    const list = make("ul", { class: "moves" });
    const first = m.sources.length ? entries[m.sources[0][0]] : null;
    list.append(make("li", {}, "noted" + (first ? ` from the ${first.kind} of ${first.date}` : ""), make("span", { class: "hint" }, `update ${m.seq}`)));
    for (const t of moves) {
      const li = make("li", {}, make("b", {}, t.words), " ");
      if (t.successor !== null) li.append(jump(t.successor));
      li.append(make("span", { class: "hint" }, `${t.date ? t.date + ", " : ""}update ${t.seq}, decided by ${t.by}${t.assumed ? "; which of the two is later was assumed" : ""}${t.score ? "; " + t.score : ""}`));
      if (t.given) li.append(make("span", { class: "hint" }, `because: ${t.given}`));
      t.along.forEach(([src, dst, words], n) => li.append(make("span", { class: "hint" }, n ? "and then: " : "along the relation: ", make("i", {}, short(src)), ` ${words} `, make("i", {}, short(dst)))));
      if (t.also.length) li.append(make("span", { class: "hint" }, "also by: " + t.also.map(short).join("; ")));
      li.append(make("span", { class: "code" }, t.line));
      list.append(li);
    }
    body.push(list);
    const steps = chain(i);
    if (steps.length > 1) {
      const line = make("div", { class: "chain" });
      steps.forEach((s, n) => line.append(n ? "→" : "", jump(s, memories[s].label)));
      body.push(make("h3", {}, "What came before and after"), line);
    }
    const known = m.sources.filter(([e]) => entries[e].seq <= limit());
    if (known.length) {
      body.push(make("h3", {}, known.length > 1 ? `Proof in the record (${known.length} places)` : "Proof in the record"));
      for (const [e, start, end, found] of known.slice(0, 12)) body.push(proof(entries[e], found ? [[start, end]] : [], found ? "" : "; the writer's quote was not found in it"));
      if (known.length > 12) body.push(make("p", { class: "hint" }, `and ${known.length - 12} more places`));
    }
    const near = ties(i);
    if (near.length) {
      const ul = make("ul", { class: "ties" });
      for (const t of near.slice(0, 40)) ul.append(make("li", {}, `${t.words} `, jump(t.other), make("span", { class: "hint" }, ` found by ${t.origin}, confidence ${t.confidence}`)));
      body.push(make("h3", {}, "Connections"), ul);
    }
    body.push(make("p", { class: "code" }, m.id));
    settle(body);
    mark();
    const e = itemOf(i);
    if (e && scroll) reveal(e);
    if (e && focus) { document.querySelectorAll('.item[tabindex="0"]').forEach((n) => n.setAttribute("tabindex", -1)); e.setAttribute("tabindex", 0); e.focus({ preventScroll: true }); }
  }
  const short = (i) => { const t = memories[i].text || "a deleted statement"; return t.length > 90 ? t.slice(0, 88) + "…" : t; };

  function read(i) {
    chosen = -1; chosenEntry = i;
    const e = entries[i], spans = [], said = [];
    memories.forEach((m, k) => m.sources.forEach(([entry, start, end, found]) => {
      if (entry !== i || at(m, limit()).place === "absent") return;
      if (found) spans.push([start, end]);
      if (!said.includes(k)) said.push(k);
    }));
    $("panel-kind").textContent = visible(`${e.kind}, ${e.date}`);
    const box = proof(e, spans, "");
    box.classList.add("long");
    const ul = make("ul", { class: "ties" });
    for (const k of said) ul.append(make("li", {}, jump(k)));
    settle([box, make("h3", {}, said.length ? "Remembered from it" : "Nothing is remembered from it"), ul]);
    mark();
  }

  function reveal(e) {
    const box = e.closest(".lane").getBoundingClientRect(), top = bar() + 30, bottom = innerHeight - ($("panel").classList.contains("open") && innerWidth <= 1020 ? innerHeight * 0.62 : 10);
    if (box.top < top || box.bottom > bottom) scrollBy({ top: box.top - (top + bottom) / 2 + Math.min(box.height, bottom - top) / 2 });
  }
  const bar = () => (getComputedStyle($("controls")).position === "sticky" ? $("controls").getBoundingClientRect().height : 0);

  function close() {
    chosen = chosenEntry = -1;
    $("panel").classList.remove("open");
    $("panel-kind").textContent = "Details";
    $("panel-body").replaceChildren(make("p", { class: "hint" }, "Choose a bar to see what it says and why it stands where it stands."));
    mark();
  }

  // To the neighbour in the lane (by = ±1) or to the nearest bar of another lane (lane = ±1).
  function walk(by, lane) {
    if (!order.length) return;
    let k = order.indexOf(chosen);
    if (k < 0) k = by + lane > 0 ? -1 : order.length;
    if (by || k < 0 || k >= order.length) {
      choose(order[Math.min(order.length - 1, Math.max(0, k + (by || lane)))], { focus: true, scroll: true });
      return;
    }
    const here = memories[chosen].lane, mine = itemOf(chosen).getBoundingClientRect().left;
    const lanesShown = [...new Set(order.map((i) => memories[i].lane))];
    const target = lanesShown[lanesShown.indexOf(here) + lane];
    if (target === undefined) return;
    const near = order.filter((i) => memories[i].lane === target)
      .sort((a, b) => Math.abs(itemOf(a).getBoundingClientRect().left - mine) - Math.abs(itemOf(b).getBoundingClientRect().left - mine))[0];
    choose(near, { focus: true, scroll: true });
  }

  // ---- the graph --------------------------------------------------------------------------------------------

  const nodes = [...document.querySelectorAll(".node")], edges = [...document.querySelectorAll(".edge[data-edge]")];
  const off = new Set();
  let node = -1;
  function graph() {
    const seen = new Set(memories.filter((m) => at(m, limit()).place !== "absent").map((m) => m.lane));
    nodes.forEach((e, n) => {
      e.classList.toggle("absent", !data.nodes[n].some((l) => seen.has(l)));
      e.classList.toggle("chosen", n === node);
      e.classList.toggle("dim", node >= 0 && n !== node && !data.edges.some(([t, a, b]) => !off.has(t) && ((a === node && b === n) || (b === node && a === n))));
    });
    edges.forEach((e, k) => {
      const [type, a, b, found] = data.edges[k];
      e.classList.toggle("absent", !found.some((r) => relations[r][3] <= limit()));
      e.classList.toggle("off", off.has(type));
      e.classList.toggle("dim", node >= 0 && a !== node && b !== node);
    });
    if ($("edge-words")) {
      const said = node < 0 ? [] : data.edges.map((e, k) => (!off.has(e[0]) && (e[1] === node || e[2] === node) ? edges[k].textContent : "")).filter(Boolean);
      $("edge-words").textContent = said.length ? said.join("; ") + "." : "Point at a box to see only its own connections; click it to go to its lane.";
    }
  }
  nodes.forEach((e, n) => {
    const on = () => { node = n; graph(); }, leave = () => { node = -1; graph(); };
    e.addEventListener("mouseenter", on); e.addEventListener("focus", on);
    e.addEventListener("mouseleave", leave); e.addEventListener("blur", leave);
    e.addEventListener("click", (event) => {
      event.preventDefault();
      const lane = $("lane-" + data.nodes[n].find((l) => !$("lane-" + l).hidden));
      const first = lane && lane.querySelector(".item");
      if (first) choose(Number(first.dataset.memory), { focus: true, scroll: true });
    });
  });
  document.querySelectorAll("[data-type]").forEach((e) => e.addEventListener("change", () => {
    e.checked ? off.delete(Number(e.dataset.type)) : off.add(Number(e.dataset.type));
    graph();
  }));

  // ---- controls ---------------------------------------------------------------------------------------------

  const slider = $("slider");
  function say() {
    const places = memories.map((m) => at(m, view.seq).place), count = (place) => places.filter((p) => p === place).length;
    const u = data.updates[view.seq - 1];
    $("moment").textContent = visible(view.mode === "now" ? `all that is known, after ${data.version} update${data.version === 1 ? "" : "s"}`
      : view.mode === "date" ? `true on ${words(view.day)}, by all that is known now`
      : u ? `after update ${view.seq} of ${data.version}: ${u.words}${u.undone ? " (taken back later)" : ""}; ${count("active")} held, ${count("history")} past` : "before the first update");
    slider.setAttribute("aria-valuetext", $("moment").textContent);
  }
  let waiting = false;
  function refresh() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; say(); draw(); if (chosen >= 0) choose(chosen); });
  }
  // The slider spans the updates, or the time that is shown.
  function range() {
    const [low, high, value] = view.mode === "date" ? [Math.ceil(shown[0]), Math.floor(shown[1]), view.day]
      : [0, data.version, view.mode === "now" ? data.version : view.seq];
    slider.min = low; slider.max = high; slider.value = value;
  }
  function mode(name) {
    view.mode = name;
    slider.disabled = name === "now";
    range();
    refresh();
  }
  document.querySelectorAll("[name=mode]").forEach((e) => e.addEventListener("change", () => mode(e.value)));
  slider.addEventListener("input", () => { view[view.mode === "date" ? "day" : "seq"] = Number(slider.value); refresh(); });
  $("find").addEventListener("input", () => { wanted.words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean); refresh(); });
  $("kind").addEventListener("change", () => { wanted.kind = $("kind").value; refresh(); });
  $("holds").addEventListener("change", () => { wanted.holds = $("holds").checked; refresh(); });
  $("controls").addEventListener("submit", (event) => event.preventDefault());

  function zoom(factor) {
    const e = chosen >= 0 && memories[chosen].begun;
    const middle = e ? (e[0] + e[1]) / 2 : (shown[0] + shown[1]) / 2;
    const half = Math.max(5, ((shown[1] - shown[0]) * factor) / 2);
    shown = half * 2 >= full[1] - full[0] ? [...full] : [Math.max(full[0], Math.min(middle - half, full[1] - 2 * half)), 0];
    if (!shown[1]) shown[1] = shown[0] + 2 * half;
    range();
    refresh();
  }
  $("in").addEventListener("click", () => zoom(0.5));
  $("out").addEventListener("click", () => zoom(2));
  $("whole").addEventListener("click", () => { shown = [...full]; range(); refresh(); });
  let drag = null;
  $("timeline").addEventListener("wheel", (event) => {
    if (!event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    const span = shown[1] - shown[0];
    if (span >= full[1] - full[0]) return;
    event.preventDefault();
    const by = ((event.deltaX || event.deltaY) / width) * span;
    const start = Math.max(full[0], Math.min(full[1] - span, shown[0] + by));
    shown = [start, start + span];
    refresh();
  }, { passive: false });
  $("timeline").addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.target.closest(".track") && !event.target.closest(".item")) drag = { x: event.clientX, shown: [...shown] };
  });
  addEventListener("pointermove", (event) => {
    if (!drag) return;
    const span = drag.shown[1] - drag.shown[0], by = ((drag.x - event.clientX) / width) * span;
    const start = Math.max(full[0], Math.min(full[1] - span, drag.shown[0] + by));
    if (span < full[1] - full[0]) { shown = [start, start + span]; refresh(); }
  });
  addEventListener("pointerup", () => { drag = null; });

  document.addEventListener("click", (event) => {
    const go = event.target.closest("[data-jump]"), i = event.target.closest(".item[data-memory]"), e = event.target.closest(".item[data-entry]");
    if (go) choose(Number(go.dataset.jump), { scroll: true });
    else if (i) choose(Number(i.dataset.memory), { focus: true });
    else if (e) read(Number(e.dataset.entry));
  });
  $("close").addEventListener("click", close);
  $("previous").addEventListener("click", () => walk(-1, 0));
  $("next").addEventListener("click", () => walk(1, 0));
  document.addEventListener("keydown", (event) => {
    const tag = event.target.tagName, typing = (tag === "INPUT" && event.target.type === "search") || tag === "SELECT";
    if (event.key === "Escape") { close(); if (typing) event.target.blur(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || typing || (tag === "INPUT" && event.target.type !== "checkbox")) return;
    const keys = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const inTimeline = event.target === document.body ? chosen >= 0 : $("timeline").contains(event.target);
    if (keys[event.key] && inTimeline) { event.preventDefault(); walk(...keys[event.key]); }
    else if (event.key === "Enter" && event.target.dataset.entry) read(Number(event.target.dataset.entry));
    else if (event.key === "Enter" && event.target.id === "timeline") walk(1, 0);
    else if (event.key === "/") { event.preventDefault(); $("find").focus(); }
    else if (event.key === "+") zoom(0.5);
    else if (event.key === "-") zoom(2);
  });

  const tip = $("tip");
  $("timeline").addEventListener("pointermove", (event) => {
    const e = event.pointerType === "mouse" && event.target.closest(".item");
    tip.hidden = !e;
    if (!e) return;
    if (e.dataset.entry) { const n = entries[e.dataset.entry]; tip.replaceChildren(make("b", {}, n.kind), n.date); }
    else {
      const m = memories[e.dataset.memory], o = stand(m), why = o.move && o.look !== "active" ? `: ${o.move.words}${o.move.successor !== null ? " " + memories[o.move.successor].label : ""}` : "";
      tip.replaceChildren(make("b", {}, m.text || "Deleted"), `${look(o)}${view.mode === "date" ? "" : why}`);
    }
    tip.style.left = Math.max(6, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = (event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18) + "px";
  });
  $("timeline").addEventListener("pointerleave", () => { tip.hidden = true; });

  // ---- beginning --------------------------------------------------------------------------------------------

  const all = document.querySelector("#all details");
  all.open = false;
  let opened = false;
  const PAPER = 500; // width of the tracks on a portrait page
  addEventListener("beforeprint", () => { opened = all.open; all.open = true; width = PAPER; draw(); });
  addEventListener("afterprint", () => { all.open = opened; measure(); });
  document.querySelector('a[href="#all"]').addEventListener("click", () => { all.open = true; });
  $("timeline").setAttribute("tabindex", 0);
  function measure() {
    const w = $("axis").getBoundingClientRect().width;
    root.style.setProperty("--bar", bar() + "px");
    if (w && Math.abs(w - width) > 1) { width = w; draw(); } else mark();
  }
  new ResizeObserver(measure).observe($("timeline"));
  new ResizeObserver(measure).observe($("controls"));
  measure();
  say();
  draw();
})();
