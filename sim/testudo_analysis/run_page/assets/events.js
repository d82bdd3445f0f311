// Incidents by moment: the worst moment first, or in the order of time; the moment at the cursor is marked.
const counted = (count, what) => `${count} ${what}${count === 1 ? '' : 's'}`;

class Moments {
  constructor(box, cursor) {
    this.cursor = cursor;
    const groups = new Map();
    for (const event of data.events) groups.set(event.moment, [...(groups.get(event.moment) || []), event]);
    this.moments = [...groups.values()].map((events) => {
      const sorted = [...events].sort((a, b) => a.weight - b.weight);
      return {events: sorted, worst: sorted[0], at: sorted[0].at_s, begin: Math.min(...events.map((e) => e.begin_s)),
        end: Math.max(...events.map((e) => e.end_s))};
    });
    const head = element('div', box, {class: 'head'});
    const count = data.events.length;
    element('strong', head, {text: count ? `${counted(count, 'incident')} at ${counted(this.moments.length, 'moment')}` : data.searched ? 'No incidents' : 'Incidents are not searched for here'});
    this.list = element('ol', box, {class: 'moments'});
    if (count) {
      const order = element('select', head, {'aria-label': 'order of the moments'});
      element('option', order, {text: 'worst first', value: 'weight'});
      element('option', order, {text: 'by time', value: 'time'});
      order.addEventListener('change', () => this.fill(order.value));
    } else {
      box.parentElement.classList.add('calm');
    }
    this.fill('weight');
    cursor.moved.push((time) => this.show(time));
  }

  fill(order) {
    if (!this.moments.length) return;
    const key = order === 'time' ? (one) => one.begin : (one) => one.worst.weight;
    this.moments.sort((a, b) => key(a) - key(b));
    this.list.replaceChildren();
    for (const moment of this.moments) this.entry(moment);
    this.current = null;
    this.show(this.cursor.time);
  }

  entry(moment) {
    const {worst, events} = moment;
    const item = moment.item = element('li', this.list, {class: worst.severity});
    const button = element('button', item, {class: 'jump', 'aria-label': `go to ${seconds(moment.at)}: ${worst.what}`});
    element('b', button, {class: 'sign', text: SIGNS[worst.severity]});
    element('span', button, {class: 'time', text: seconds(moment.at)});
    element('span', button, {text: worst.what});
    button.addEventListener('click', () => this.cursor.set(moment.at));
    if (worst.doubt) element('p', item, {class: worst.doubt.includes('cannot') ? 'doubt' : 'error', text: worst.doubt});
    const rest = events.length - 1;
    const more = element('details', item);
    element('summary', more, {text: rest ? `cause, command, and ${rest} more at this moment` : 'cause and command'});
    if (worst.cause) element('p', more, {text: `Likely cause: ${worst.cause}.`});
    if (worst.command) element('code', more, {text: worst.command});
    for (const event of events.slice(1)) {
      const sign = `${SIGNS[event.severity]} ${seconds(event.at_s)} ${event.what}`;
      element('p', more, {text: event.doubt ? `${sign} (${event.doubt})` : sign});
    }
  }

  // Marks the moment that contains a time: of several the one that begins last.
  show(time) {
    let found = null;
    for (const moment of this.moments) {
      const isNow = moment.begin - 0.05 <= time && time <= Math.max(moment.end, moment.at) + 0.3;
      if (isNow && (!found || moment.begin > found.begin)) found = moment;
    }
    this.list.dataset.time = time.toFixed(3);
    if (found === this.current) return;
    this.current?.item.removeAttribute('aria-current');
    this.current = found;
    if (!found) return;
    found.item.setAttribute('aria-current', 'true');
    const {list} = this, top = found.item.offsetTop - list.offsetTop;
    if (top < list.scrollTop || top + found.item.offsetHeight > list.scrollTop + list.clientHeight) {
      list.scrollTop = top - 8;
    }
  }

  // Goes to the next moment after the cursor, or with -1 to the one before it.
  step(direction) {
    const times = this.moments.map((moment) => moment.at).sort((a, b) => a - b);
    const {time} = this.cursor;
    const next = direction > 0 ? times.find((at) => at > time + 0.01) : times.reverse().find((at) => at < time - 0.01);
    if (next !== undefined) this.cursor.set(next);
  }
}
