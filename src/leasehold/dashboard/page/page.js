// The page: one element for each pipeline, partition, move, rejected row and parked event, kept up to date by
// server-sent events. Whatever comes from the server goes in as text, never as markup.

import { draw, svg, ticks } from "./draw.js";

const SECONDS = { "30m": 1800, "6h": 21600, "24h": 86400 };
const STEP = { "30m": 300, "6h": 3600, "24h": 14400 };
const MOST = 2000;
const LOUD = ["taken over", "taken from a live owner", "not renewed", "suspected", "left"];
const pipelines = new Map();
const link = document.getElementById("link");
let span = "30m";
let drawn = false;

function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
function name(owner) {
  return owner.includes("/") ? owner.slice(0, owner.lastIndexOf("/")) : owner;
}
function count(number) {
  return number === null || number === undefined ? "unknown" : Math.round(number).toLocaleString("en-US");
}
function lasting(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  if (seconds < 120) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}
function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}
/** The zone of this browser's clock at a time, as people write it: `UTC`, `CET`, `GMT+5:30`. */
function zone(at) {
  const parts = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(new Date(at * 1000));
  return parts.find((part) => part.type === "timeZoneName").value;
}
function fact(list, title) {
  const value = make("dd");
  const box = make("div", {}, make("dt", {}, title), value);
  list.append(box);
  return { box, value };
}
function chip(owner, colour, alive, more = "") {
  const made = make("span", { class: `chip ${colour === null ? "" : `k${colour}`} ${alive ? "" : "gone"}`, title: owner });
  made.append(make("span", {}, owner ? `${name(owner)}${alive ? "" : " (expired)"}${more}` : "nobody"));
  return made;
}

class Lane {
  constructor(partition) {
    this.part = make("span", { class: "part" }, partition);
    this.owner = make("span", { class: "chip" });
    this.strip = svg("svg", { class: "strip", viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img" });
    this.lag = make("span", { class: "num" });
    this.rate = make("span", { class: "num" });
    this.remark = make("p", { class: "remark" });
    const shown = make("span", { class: "drawn" }, this.strip);
    const summary = make("summary", {}, this.part, this.owner, shown, this.lag, this.rate, this.remark);
    this.more = make("dl", { class: "more" });
    this.facts = new Map();
    this.element = make("li", { class: "lane" }, make("details", {}, summary, this.more));
  }

  show(row) {
    const told = JSON.stringify(row);
    if (told === this.told) return;
    this.told = told;
    const fresh = chip(row.owner, row.colour, row.alive || !row.owner);
    if (!this.owner.isEqualNode(fresh)) {
      this.owner.replaceWith(fresh);
      this.owner = fresh;
    }
    say(this.lag, `${count(row.lag)} behind`);
    say(this.rate, `${count(row.done)}/s`);
    say(this.remark, remark(row));
    const owner = row.owner ? `${name(row.owner)}${row.alive ? "" : ", expired"}` : "nobody";
    this.strip.setAttribute("aria-label", `partition ${row.partition}, owner ${owner}, lag ${row.lag} events`);
    const facts = {
      Owner: row.owner || "nobody",
      Level: String(row.level),
      Renewed: row.age === null ? "-" : `${lasting(row.age)} ago`,
      Checkpoint: row.checkpoint === null ? "none" : count(row.checkpoint),
      "Kept by the hub": `${count(row.begin)} to ${count(row.end)}`,
      Read: `${(100 * row.share).toFixed(1)} %`,
      "Oldest unread": row.lag ? lasting(row.lagSeconds) : "nothing unread",
      "Removed in": row.secondsLeft === null ? "-" : lasting(row.secondsLeft),
    };
    if (row.verdict) facts.Verdict = `${row.verdict}: ${row.why}`;
    for (const [title, text] of Object.entries(facts)) {
      if (!this.facts.has(title)) this.facts.set(title, fact(this.more, title));
      say(this.facts.get(title).value, text);
    }
  }
}

function remark(row) {
  const said = [];
  if (row.verdict && !["ok", "unknown"].includes(row.verdict)) said.push(`${row.verdict}: ${row.why}`);
  if (row.unreadable) said.push(`its ownership record cannot be read: ${row.unreadable}`);
  if (row.askedBy) said.push(`${name(row.askedBy)} waits for it`);
  if (row.failures) {
    said.push(`${row.suspect ? "suspect, taken last: " : ""}${row.failures} bad ends in a row: ${row.lastError}`);
  }
  if (row.heldBack) said.push(`an open transaction holds back ${count(row.heldBack)}`);
  return said.join("; ");
}

class Pipeline {
  constructor(title) {
    this.name = title;
    this.heading = make("h2", {}, title);
    this.error = make("p", { class: "error", role: "alert", hidden: "" });
    const facts = make("dl", { class: "facts" });
    const titles = ["Lag, events", "Oldest unread", "Done/s", "Sent/s", "Partitions", "Rejected", "Parked"];
    this.facts = titles.map((one) => fact(facts, one));
    this.owners = make("ul", { class: "owners", "aria-label": `instances of ${title}` });
    const heads = ["Partition", "Owner", "Owner and lag over time", "Lag", "Done"];
    const head = make("div", { class: "head", "aria-hidden": "true" });
    heads.forEach((one, index) => head.append(make("span", index > 2 ? { class: "num" } : {}, one)));
    this.list = make("ol", { "aria-label": `partitions of ${title}` });
    this.times = make("span", { class: "times" });
    this.zone = make("span", {});
    this.axis = make("div", { class: "head axis", role: "group", "aria-label": `axis of time of ${title}` },
      make("span"), this.zone, this.times);
    this.moves = make("ol", { class: "moves", role: "log", "aria-label": `moves of ${title}`,
      "data-none": "none seen in the last day" });
    this.rows = make("ol", { class: "rows", "aria-label": `rejected rows of ${title}`, "data-none": "none" });
    const scrolled = (list) => make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": list.getAttribute("aria-label") }, list);
    this.acted = make("p", { class: "acted", role: "status" });
    this.rejected = make("div", { hidden: "" }, make("h3", {}, "Rejected rows"), scrolled(this.rows));
    this.waiting = make("ol", { class: "rows parked", "aria-label": `parked events of ${title}`, "data-none": "none" });
    this.parked = make("div", { hidden: "" }, make("h3", {}, "Parked events"), scrolled(this.waiting));
    this.element = make("section", { "aria-label": `pipeline ${title}` },
      this.heading, this.error, facts, make("h3", {}, "Instances"), this.owners,
      make("h3", {}, "Partitions"), head, this.list, this.axis, make("h3", {}, "Moves"), scrolled(this.moves),
      this.acted, this.rejected, this.parked);
    document.getElementById("pipelines").append(this.element);
    this.lanes = new Map();
    this.samples = [];
    this.known = new Set();
    this.told = new Map();
    this.colours = {};
    this.began = false;
    this.load();
  }

  async load() {
    try {
      const answer = await fetch(`history/${encodeURIComponent(this.name)}?window=${span}`);
      if (!answer.ok) return;
      const past = await answer.json();
      const newest = past.at.length ? past.at[past.at.length - 1] : 0;
      const live = this.samples.filter((one) => one.at > newest && one.live);
      this.samples = past.at.map((at, index) => ({ at, of: (p) => {
        const found = past.partitions[index][p];
        return found && [past.owners[found[0]], found[1]];
      } })).concat(live);
      soon();
    } catch {
      // the stream says that the server is away
    }
  }

  show(seen) {
    this.seen = seen;
    this.heard = Date.now();
    this.warn();
    this.showMoves(seen.moves);
    if (!seen.instances) return;
    this.colours = seen.colours; // of those who are here, and of the latest who were
    const [lag, oldest, done, sent, held, rejected, parked] = this.facts;
    say(lag.value, count(seen.lag));
    say(oldest.value, seen.lag ? lasting(seen.lagSeconds) : "none");
    say(done.value, count(seen.done));
    say(sent.value, count(seen.sent));
    say(held.value, `${seen.owned} of ${seen.partitions.length}`);
    held.box.className = seen.owned < seen.partitions.length ? "bad" : "";
    say(rejected.value, count(seen.rejected) + (seen.deadLetters ? `, ${count(seen.deadLetters)} dead letters` : ""));
    rejected.box.className = seen.rejected ? "bad" : "";
    say(parked.value, count(seen.parked));
    parked.box.className = seen.parked ? "bad" : "";
    const chips = seen.instances.map((one) => make("li", {}, chip(one.owner, one.colour, true, `, ${one.partitions}`)));
    if (this.owners.textContent !== chips.map((one) => one.textContent).join("")) this.owners.replaceChildren(...chips);
    this.showLanes(seen.partitions);
    this.rejected.hidden = !seen.rejectedRows.length;
    const left = seen.rejected - seen.rejectedRows.length;
    say(this.rejected.firstChild, `Rejected rows${left > 0 ? `, the first ${seen.rejectedRows.length}` : ""}`);
    this.showRows(this.rows, "rejected", seen.rejectedRows);
    this.parked.hidden = !seen.parkedEvents.length;
    const first = seen.parked > seen.parkedEvents.length ? `, the first ${seen.parkedEvents.length}` : "";
    const since = seen.oldestParked ? `, the oldest since ${clock(seen.oldestParked)}` : "";
    const next = seen.nextRetry ? `, the next ${seen.nextRetry > seen.at ? `is tried at ${clock(seen.nextRetry)}` : "is due"}` : "";
    say(this.parked.firstChild, `Parked events${first}${since}${next}`);
    this.showRows(this.waiting, "parked", seen.parkedEvents);
    const now = new Map(seen.partitions.map((row) => [row.partition, [row.alive ? row.owner : "", row.lag]]));
    while (this.samples.length && this.samples[this.samples.length - 1].at > seen.at) this.samples.pop(); // a clock was set back
    const [before, last] = this.samples.slice(-2); // the latest is always there, and moves until it is a step behind
    if (last && last.live && seen.at - before.at < SECONDS[span] / MOST) this.samples.pop();
    this.samples.push({ at: seen.at, live: true, of: (partition) => now.get(partition) });
    if (this.samples.length > 2 * MOST) this.samples = this.samples.slice(-MOST);
    soon();
  }

  warn() { // the server tells of each look that finds something else, and of one in ten others
    const quiet = (Date.now() - this.heard) / 1000;
    const hangs = !link.className && quiet > 60 + 15 * this.seen.every ? `what is asked has not answered for ${lasting(quiet)}` : "";
    const why = this.seen.error || hangs;
    this.error.hidden = !why;
    say(this.error, why ? `Nothing newer than ${this.seen.at ? clock(this.seen.at) : "the start"} is known: ${why}` : "");
  }

  showLanes(rows) {
    const here = new Set(rows.map((row) => row.partition));
    for (const [partition, lane] of this.lanes) {
      if (here.has(partition)) continue;
      lane.element.remove();
      this.lanes.delete(partition);
    }
    for (const row of rows) {
      if (!this.lanes.has(row.partition)) {
        this.lanes.set(row.partition, new Lane(row.partition));
        this.list.append(this.lanes.get(row.partition).element);
      }
      this.lanes.get(row.partition).show(row);
    }
  }

  showMoves(moves) {
    const keys = moves.map((one) => JSON.stringify(one));
    for (let index = moves.length - 1; index >= 0; index -= 1) {
      if (this.known.has(keys[index])) continue;
      this.known.add(keys[index]);
      const element = sentence(moves[index]);
      if (this.began) element.classList.add("new");
      this.moves.prepend(element);
    }
    if (keys.length) this.known = new Set(keys); // a move that is not among the latest any more does not come again
    while (this.moves.children.length > 200) this.moves.lastChild.remove();
    this.began = true;
  }

  showRows(list, of, rows) {
    const told = JSON.stringify([rows, this.seen.actions]);
    if (told === this.told.get(of)) return;
    this.told.set(of, told);
    list.replaceChildren(...rows.map((row) => {
      const reason = of === "parked" ? waits(row) : row.reason;
      const shown = make("li", {},
        make("p", {}, make("b", {}, `partition ${row.partition}, event ${row.number}`), `: ${reason}`),
        make("pre", {}, row.body));
      if (row.traceback) shown.append(make("details", {}, make("summary", {}, "Traceback"), make("pre", {}, row.traceback)));
      if (this.seen.actions) shown.append(this.buttons(of, row));
      return shown;
    }));
  }

  buttons(of, row) {
    const event = `partition ${row.partition}, event ${row.number}`;
    const [title, label] = of === "parked" ? ["Try now", `try ${event} now`] : ["Try again", `try ${event} again`];
    const retry = make("button", { type: "button", "aria-label": label }, title);
    retry.addEventListener("click", () => this.act({ action: "retry", of }, row, retry));
    const why = make("input", { required: "", maxlength: "500", placeholder: "why it is not wanted",
      "aria-label": `why ${event} is dropped` });
    const drop = make("button", { "aria-label": `drop ${event}` }, "Drop");
    const form = make("form", { class: "acts" }, retry, why, drop);
    form.addEventListener("submit", (submitted) => {
      submitted.preventDefault();
      this.act({ action: "drop", of, because: why.value }, row, drop);
    });
    return form;
  }

  async act(wish, row, button) {
    button.disabled = true;
    say(this.acted, `${wish.action === "retry" ? "trying" : "dropping"} partition ${row.partition}, event ${row.number} …`);
    try {
      const answer = await fetch(`actions/${encodeURIComponent(this.name)}`, { method: "POST",
        body: JSON.stringify({ ...wish, hub: row.hub, events: [[row.partition, row.number]] }) });
      const told = await answer.json();
      const done = told.error || Object.entries(told.result).filter(([, value]) => typeof value === "number" && value)
        .map(([what, value]) => `${value} ${what}`).join(", ");
      say(this.acted, `partition ${row.partition}, event ${row.number}: ${done || "nothing was done"}`);
    } catch {
      say(this.acted, "the dashboard's server does not answer");
    }
    button.disabled = false;
  }

  draw() {
    const to = this.seen && this.seen.at ? Math.max(this.seen.at, Date.now() / 1000 - 5) : Date.now() / 1000;
    const from = to - SECONDS[span];
    const kept = this.samples.filter((one) => one.at >= from);
    let highest = 1;
    const of = new Map([...this.lanes.keys()].map((partition) => [partition, []]));
    for (const one of kept) {
      for (const [partition, list] of of) {
        const found = one.of(partition);
        if (!found) continue;
        list.push([one.at, found[0], found[1]]);
        highest = Math.max(highest, found[1]);
      }
    }
    const gap = Math.max(15, (3 * SECONDS[span]) / 300);
    const colour = (owner) => this.colours[owner] ?? 7;
    const times = ticks(from, to, STEP[span], -60 * new Date(to * 1000).getTimezoneOffset());
    for (const [partition, lane] of this.lanes) draw(lane.strip, of.get(partition), { from, to, highest, gap, colour, times });
    this.showTimes(times, from, to);
  }

  showTimes(times, from, to) {
    say(this.zone, `Time, ${zone(to)}`);
    const whole = times.filter((at) => Math.abs((at - from) / (to - from) - 0.5) < 0.45); // the text of others is cut
    this.times.replaceChildren(...whole.map((at) => {
      const told = make("time", { datetime: new Date(at * 1000).toISOString() }, clock(at).slice(0, 5));
      told.style.left = `${(100 * (at - from)) / (to - from)}%`; // a property: the page's policy takes no style attribute
      return told;
    }));
  }
}

function waits(row) {
  const tried = row.tries ? `tried ${row.tries === 1 ? "once" : `${row.tries} times`}, ` : "";
  const next = row.next === null ? "waits behind an earlier event" : `next try ${clock(row.next)}`;
  return `entity ${row.key}, parked ${clock(row.parkedAt)}, ${tried}${next}${row.reason ? `: ${row.reason}` : ""}`;
}

function sentence(move) {
  const said = make("p", LOUD.includes(move.kind) ? { class: "loud" } : {});
  said.append(make("b", {}, move.partition === "" ? `${name(move.owner)} ${move.kind}` : `partition ${move.partition} ${move.kind}`));
  const by = move.owner || move.before;
  if (move.partition !== "" && by) said.append(` by ${name(by)}`);
  if (move.owner && move.before && move.before !== move.owner) said.append(` from ${name(move.before)}`);
  if (move.reason) said.append(make("span", { class: "why" }, `: ${move.reason}`));
  const when = new Date(move.at * 1000);
  return make("li", {}, make("time", { datetime: when.toISOString(), title: when.toLocaleString("en-GB") }, clock(move.at)), said);
}

function soon() {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(() => {
    drawn = false;
    for (const one of pipelines.values()) one.draw();
  });
}

function connect() {
  const stream = new EventSource("events");
  stream.addEventListener("open", () => { link.className = ""; say(link, "live"); });
  stream.addEventListener("error", () => { link.className = "away"; say(link, "the dashboard's server does not answer"); });
  stream.addEventListener("pipeline", (event) => {
    const seen = JSON.parse(event.data);
    if (!pipelines.has(seen.name)) pipelines.set(seen.name, new Pipeline(seen.name));
    pipelines.get(seen.name).show(seen);
    say(document.getElementById("seen"), clock(Date.now() / 1000));
  });
}

for (const choice of document.getElementsByName("window")) {
  choice.addEventListener("change", () => {
    span = choice.value;
    for (const one of pipelines.values()) one.load();
  });
}
connect();
setInterval(() => { for (const one of pipelines.values()) one.warn(); }, 5000);
