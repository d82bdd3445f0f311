// The station page: keeps the connection, says when it is lost, presses the emergency stop, and sends requests.

import { MapView } from "./map.js";
import { Cards, button, element, seconds, sentence, showAnswers, showRuns } from "./robots.js";

const LOST_MS = 1000;  // a picture comes five times a second
const LATE_MS = 1000;  // a picture that arrives later than others by this was held up: it shows the past
const DRIFT = 2e-4;  // of two clocks
const AGAIN_MS = 700, DEAD_MS = 4000, PENDING_MS = 25000, RUNS_MS = 10000, TOAST_MS = 7000;
const STOP_MS = 30000, STOP_QUIET_MS = 1500, SETTLED_MS = 1000;
const BY_HAND = "Stop the robots by hand, by the button of the station, or by `testudo estop` in a terminal.";

const at = (id) => document.getElementById(id);
const token = location.hash.slice(1);
const state = {
  fleet: null, picture: null, received: -Infinity, lost: true, chosen: "", pending: new Map(), refusal: "", stop: null,
  seen: -1,
};
const map = new MapView(at("map"));
const cards = new Cards(at("robots"), ask, choose);
globalThis.testudo = { state, map, ask, stop };

function headers(more = {}) {
  return { "X-Testudo-Token": token, ...more };
}

// --- the connection -------------------------------------------------------------------------------------------------

async function connect() {
  for (;;) {
    try {
      await listen();
    } catch {
      // the banner says since when nothing comes
    }
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

async function listen() {
  const control = new AbortController();
  let dead = setTimeout(() => control.abort(), DEAD_MS);
  const answer = await fetch("events", { headers: headers(), signal: control.signal, cache: "no-store" });
  if (!answer.ok) {
    state.refusal = (await answer.json()).sentence;
    clearTimeout(dead);
    return;
  }
  state.refusal = "";
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const clock = { offset: Infinity, at: performance.now() };
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    clearTimeout(dead);
    if (done) return;
    dead = setTimeout(() => control.abort(), DEAD_MS);
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) take(part, clock);
  }
}

function take(text, clock) {
  const [, name, data] = /^event: (\w+)\ndata: (.*)$/s.exec(text) || [];
  if (name === "fleet") {
    state.fleet = JSON.parse(data);
    begin();
  } else if (name === "picture") {
    const picture = JSON.parse(data), now = performance.now();
    const offset = now - 1000 * picture.sent_s;
    clock.offset = Math.min(clock.offset + DRIFT * (now - clock.at), offset);
    clock.at = now;
    if (offset - clock.offset > LATE_MS) return;
    state.picture = picture;
    state.received = now;
    show();
  }
}

// Say at any time whether what is shown is live; old pictures are greyed, and only the emergency stop stays.
function watch() {
  const age_s = (performance.now() - state.received) / 1000;
  state.lost = !(1000 * age_s <= LOST_MS);
  document.body.classList.toggle("lost", state.lost);
  for (const one of document.querySelectorAll("button.do")) one.disabled = state.lost;
  if (!state.lost) return;
  at("banner-title").textContent = Number.isFinite(age_s)
    ? `No connection to the station for ${age_s.toFixed(0)} s` : "No connection to the station";
  at("banner-text").textContent = state.refusal || `Nothing below is live. The emergency stop of this page may not arrive. ${BY_HAND}`;
}

// --- what is shown --------------------------------------------------------------------------------------------------

function begin() {
  const { fleet } = state;
  at("title").textContent = `${fleet.file}, domain ${fleet.domain_id}`;
  document.title = `${fleet.file} – Testudo station`;
  cards.build(fleet);
  const names = Object.keys(fleet.robots);
  at("all").replaceChildren(
    element("span", "", "All:"),
    button("Start", () => ask("start", names), `Start all ${names.length}?`),
    button("Pause", () => ask("pause", names)),
    button("Arm", () => ask("arm", names), `Arm all ${names.length}?`),
    button("Release", () => ask("release", []), "Release the stop?"),
    button("Rearm", () => ask("rearm", names), `Rearm all ${names.length}?`),
    ...(fleet.orders ? [button("Home", () => ask("home", names), "Drive all home?")] : []),
  );
  at("map").classList.toggle("gives", fleet.orders);
  choose("");
}

function show() {
  const { fleet, picture } = state;
  takeAnswers(picture.answers);
  cards.show(picture, state.chosen);
  showAnswers(at("answers"), picture.answers, state.pending);
  showTask(picture.task);
  showStop(picture.stop);
  if (state.stop && state.stop.waiting) showWaiting();
  else if (state.stop) showOver();
  draw();
  at("scale").textContent = `grid ${map.step} m · ${fleet.frame}`;
}

function draw() {
  const asked = [...state.pending.values()].filter((one) => one.place).map((one) => ({ place: one.place, robot: one.robots[0] }));
  map.draw(state.fleet, state.picture, state.chosen, asked);
}

function showTask(task) {
  const words = !task ? "" : `Task ${task.scenario}: ${task.state}`
    + (task.time === null ? "" : `, ${task.time.toFixed(1)} s`)
    + (task.state === "waiting" && task.waits.length ? `; ${task.waits.join("; ")}` : "");
  at("task").textContent = words;
}

function showStop(stop) {
  const pressed = stop.pressed ? `Emergency stop pressed by ${stop.sources.join(", ")}.` : "Emergency stop not pressed.";
  at("resident").textContent = stop.answers ? pressed
    : "The process emergency_stop does not answer on this computer: a stop takes a second or more.";
}

function choose(name) {
  state.chosen = name;
  at("hint").textContent = !state.fleet ? "" : !state.fleet.orders
    ? "This fleet takes no goals (`orders: true` in its file)."
    : name ? `Click the map to give ${name} a goal. Esc: no robot.` : "Click a robot, then its goal.";
  for (const card of document.querySelectorAll(".robot")) card.classList.toggle("chosen", card.dataset.robot === name);
  draw();
}

function toast(done, words) {
  const made = element("div", `toast ${done ? "yes" : "no"}`, words);
  at("toasts").append(made);
  while (at("toasts").children.length > 4) at("toasts").firstChild.remove();
  setTimeout(() => made.remove(), TOAST_MS);
}

// --- requests -------------------------------------------------------------------------------------------------------

async function ask(verb, robots, place = null) {
  const words = `${verb} ${robots.join(" ")}${place ? ` (${place.map((x) => x.toFixed(2)).join(", ")})` : ""}`;
  try {
    const answer = await fetch("request", {
      method: "POST", headers: headers({ "Content-Type": "application/json" }), signal: AbortSignal.timeout(5000),
      body: JSON.stringify({ verb, robots, ...(place ? { place } : {}) }),
    });
    const values = await answer.json();
    if (!answer.ok) return toast(false, values.sentence);
    state.pending.set(values.number, { words, robots, place, left: Math.max(robots.length, 1), since: performance.now() });
  } catch {
    toast(false, `${words}: the station did not take it`);
  }
}

function takeAnswers(answers) {
  for (const one of answers) {
    const key = `${one.number} ${one.robot}`, pending = state.pending.get(one.number);
    if (!pending || (pending.had ||= new Set()).has(key)) continue;
    pending.had.add(key);
    toast(one.done, sentence(one));
    if ((pending.left -= 1) === 0 || !one.robot) state.pending.delete(one.number);
  }
  for (const [number, one] of state.pending) {
    if (performance.now() - one.since < PENDING_MS) continue;
    state.pending.delete(number);
    toast(false, `${one.words}: no answer`);
  }
}

// --- emergency stop -------------------------------------------------------------------------------------------------

async function stop() {
  if (state.stop && state.stop.waiting) return;
  const mine = state.stop = { waiting: true, since: performance.now() };
  showWaiting();
  const patience = setInterval(showWaiting, 200);
  let values;
  try {
    const answer = await fetch("stop", { method: "POST", headers: headers(), signal: AbortSignal.timeout(STOP_MS), keepalive: true });
    values = await answer.json();
    if (!answer.ok) values = { confirmed: false, robots: {}, sentence: `NOT STOPPED: ${values.sentence}. ${BY_HAND}` };
  } catch {
    values = { confirmed: false, robots: {}, sentence: `NOBODY ANSWERED: this page does not reach the station. ${BY_HAND}` };
  }
  clearInterval(patience);
  mine.waiting = false;
  mine.values = values;
  mine.ended = performance.now();
  const list = element("ul");
  for (const [name, one] of Object.entries(values.robots)) {
    const after = one.after === null ? "" : ` ${seconds(one.after)}`;
    list.append(element("li", one.stopped ? "yes" : "no", one.stopped ? `${name}${after}` : `${name} not confirmed`));
  }
  say(values.confirmed ? "good" : "bad", `${new Date().toLocaleTimeString()}: ${values.sentence}`, list);
}

function showWaiting() {
  if (!state.stop.waiting) return;
  const passed = performance.now() - state.stop.since;
  const robots = state.lost || !state.picture ? [] : state.picture.robots;
  const confirmed = robots.filter(isStopped).map((robot) => robot.name);
  const late = passed > STOP_QUIET_MS ? ` No confirmation of all robots for ${(passed / 1000).toFixed(0)} s. ${BY_HAND}` : "";
  say(late ? "bad" : "doubt", `Stop sent; ${confirmed.length ? `${confirmed.join(", ")} stopped` : "waiting for the guards"}.${late}`);
}

// What a press has brought about is shown as long as it is so: until a guard that confirmed brakes for it no more.
function showOver() {
  const { values, ended } = state.stop;
  if (performance.now() - ended < SETTLED_MS) return;
  const over = state.picture.robots.filter((robot) => values.robots[robot.name]?.stopped && !isStopped(robot));
  if (over.length === 0) return;
  state.stop = null;
  say("note", `No longer stopped: ${over.map((robot) => robot.name).join(", ")}.`);
}

function isStopped(robot) {
  return ["estop", "station_lost"].includes(robot.guard);
}

function say(tone, words, ...more) {
  const box = at("stop-result");
  box.className = `mark ${tone}`;
  box.style.display = "block";
  box.replaceChildren(words, ...more);
}

// --- hands ----------------------------------------------------------------------------------------------------------

at("stop").addEventListener("pointerdown", (event) => { event.preventDefault(); stop(); });
at("stop").addEventListener("click", (event) => { if (event.detail === 0) stop(); });  // by a key, or a screen reader
addEventListener("keydown", (event) => {
  if (event.code === "Space" || event.key === " ") {
    event.preventDefault();  // also of a button that has the focus
    event.stopImmediatePropagation();
    if (!event.repeat) stop();
  } else if (event.key === "Escape") {
    choose("");
  } else if (/^[1-9]$/.test(event.key) && state.fleet && !event.ctrlKey && !event.altKey && !event.metaKey) {
    choose(Object.keys(state.fleet.robots)[Number(event.key) - 1] || state.chosen);
  }
}, true);
addEventListener("keyup", (event) => { if (event.code === "Space") event.preventDefault(); }, true);

at("map").addEventListener("click", (event) => {
  if (state.lost || !state.fleet) return;
  const name = map.robotAt(state.fleet, state.picture, event.offsetX, event.offsetY);
  if (name && name !== state.chosen) return choose(name);
  if (!state.fleet.orders) return toast(false, "this fleet takes no goals: its file needs `orders: true`");
  if (!state.chosen) return toast(false, "no robot is chosen: click one first");
  ask("goal", [state.chosen], map.world(event.offsetX, event.offsetY));
});
new ResizeObserver(draw).observe(at("map"));

async function runs() {
  if (!state.lost) {
    try {
      const answer = await fetch("runs", { headers: headers(), signal: AbortSignal.timeout(5000) });
      if (answer.ok) showRuns(at("runs"), (await answer.json()).runs);
    } catch {
      // the list stays; the banner says if the connection is lost
    }
  }
  setTimeout(runs, state.lost ? 1000 : RUNS_MS);
}

setInterval(watch, 100);
watch();
connect();
runs();
