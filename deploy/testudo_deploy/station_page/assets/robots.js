// Cards of the robots, answers, and recorded runs. All words come from the network: they are set as text, never as markup.

const SIGNS = { good: "▶", rest: "❚❚", doubt: "▲", bad: "✖", silent: "?" };
const OLD_S = 0.5, BATTERY_OLD_S = 15, SURE_MS = 4000, MANY = 4;
export const VERDICTS = { good: "✔", note: "●", doubt: "▲", bad: "✖" };

export function element(name, className = "", words = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (words) made.textContent = words;
  return made;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 1 ? `${Math.round(1000 * value)} ms` : value < 10 ? `${value.toFixed(1)} s` : `${value.toFixed(0)} s`;
}

// A button that asks once more before it does what lets robots move.
export function button(words, act, sure = "") {
  const made = element("button", "do", words);
  let until = 0;
  made.type = "button";
  made.addEventListener("click", (event) => {
    event.stopPropagation();
    if (sure && performance.now() > until) {
      until = performance.now() + SURE_MS;
      made.textContent = sure;
      made.classList.add("sure");
      setTimeout(() => { made.textContent = words; made.classList.remove("sure"); }, SURE_MS);
      return;
    }
    until = 0;
    made.textContent = words;
    made.classList.remove("sure");
    act();
  });
  return made;
}

export class Cards {
  // `ask(verb, robots)` begins a request, `choose(name)` selects a robot.
  constructor(root, ask, choose) {
    this.root = root;
    this.ask = ask;
    this.choose = choose;
    this.cards = new Map();
  }

  build(fleet) {
    this.root.replaceChildren();
    this.cards.clear();
    this.root.toggleAttribute("data-many", Object.keys(fleet.robots).length > MANY);
    for (const [name, about] of Object.entries(fleet.robots)) {
      const card = element("article", "robot silent"), head = element("div", "head");
      const mode = element("span", "mode"), why = element("p", "why"), facts = element("dl"), asks = element("div", "ask");
      const battery = element("span", "battery");
      head.append(element("h2", "", name), mode, battery);
      const rise = about.flies ? ", and take off" : "";
      asks.append(
        button("Start", () => this.ask("start", [name]), `Start ${name}?`),
        button("Pause", () => this.ask("pause", [name])),
        button("Arm", () => this.ask("arm", [name]), `Arm ${name}${rise}?`),
        button("Rearm", () => this.ask("rearm", [name]), `Rearm ${name}?`),
      );
      if (fleet.orders) asks.append(button("Home", () => this.ask("home", [name]), `Drive ${name} home?`));
      card.append(head, why, facts, asks);
      card.dataset.robot = name;
      card.addEventListener("click", () => this.choose(name));
      this.root.append(card);
      this.cards.set(name, { card, mode, why, facts, battery });
    }
  }

  show(picture, chosen) {
    for (const robot of picture.robots) {
      const parts = this.cards.get(robot.name);
      if (!parts) continue;
      parts.card.className = `robot ${robot.tone}${robot.name === chosen ? " chosen" : ""}`;
      const was = robot.mode && robot.tone === "silent" ? `silent, was ${robot.mode}` : robot.mode || "silent";
      parts.mode.textContent = `${SIGNS[robot.tone]} ${was.replace("_", " ")}`;
      parts.why.textContent = robot.why;
      this.facts(parts.facts, robot);
      this.battery(parts.battery, robot, picture.battery_age[robot.name]);
    }
  }

  battery(shown, robot, age) {
    const old = robot.tone === "silent" || (age !== undefined && age > BATTERY_OLD_S);
    shown.textContent = robot.battery && `${old ? "▲ " : ""}battery ${robot.battery}${old && age !== undefined ? `, ${seconds(age)} ago` : ""}`;
    shown.classList.toggle("old", old);
  }

  facts(list, robot) {
    const silent = robot.tone === "silent";
    const rows = [
      ["pose", seconds(robot.pose_age), silent || robot.pose_age === null || robot.pose_age > OLD_S],
      ["peers", seconds(robot.peer_age), robot.peer_age !== null && robot.peer_age > OLD_S],
      ["heard", seconds(robot.heard_age), silent],
      ["guard", robot.guard === null ? "silent" : robot.guard ? `brakes: ${robot.guard}` : "passes", robot.guard === null],
    ];
    if (robot.height !== null) rows.push(["height", `${robot.height.toFixed(2)} m`, silent]);
    if (robot.shield && robot.shield !== "passed") rows.push(["shield", robot.shield, false]);
    list.replaceChildren(...rows.map(([name, value, old]) => {
      const row = element("div");
      row.append(element("dt", "", name), element("dd", old ? "old" : "", value));
      return row;
    }));
  }
}

// The sentence of an answer, with the robot where it does not name it.
export function sentence({ robot, sentence: words }) {
  return !robot || words.includes(robot) ? words : `${robot}: ${words}`;
}

export function showAnswers(root, answers, pending) {
  const open = [...pending.values()].map((one) => element("li", "open", one.words));
  const rows = [...answers].reverse().slice(0, 12).map((one) => {
    const row = element("li", one.done ? "yes" : "no", sentence(one));
    row.append(element("small", "", ` (${one.verb}${one.robot ? ` ${one.robot}` : ""}, ${one.age.toFixed(0)} s ago)`));
    return row;
  });
  root.replaceChildren(...open, ...rows);
}

export function showRuns(root, runs) {
  const rows = runs.map((run) => {
    const row = element("li"), mark = element("span", `mark ${run.severity}`, `${VERDICTS[run.severity]} ${run.verdict}`);
    const when = element("time", "", new Date(1000 * run.started_s).toLocaleString());
    if (run.report) {
      const link = element("a", "", run.name);
      link.href = run.report;
      link.target = "_blank";
      link.rel = "noopener noreferrer";
      row.append(link);
    } else {
      row.append(element("strong", "", run.name));
    }
    row.append(" ", mark, " ", when);
    if (run.advice) row.append(element("div", "", ""), element("code", "", run.advice));
    return row;
  });
  root.replaceChildren(...(rows.length ? rows : [element("li", "", "none yet")]));
}
