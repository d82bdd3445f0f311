// A small control panel: the part of lil-gui that brax's viewer uses.
function element(tag, parent, className = '') {
  const made = document.createElement(tag);
  made.className = className;
  if (parent) parent.appendChild(made);
  return made;
}

class Entry {
  constructor(parent, object, property, low, high, step) {
    this.object = object;
    this.property = property;
    this.told = () => {};
    const value = object[property];
    if (typeof value === 'function') {
      this.domElement = this.label = element('button', parent);
      this.domElement.addEventListener('click', () => object[property]());
    } else {
      this.domElement = element('label', parent);
      this.label = element('span', this.domElement);
      this.input = element('input', this.domElement);
      const kind = high === undefined ? 'number' : 'range';
      this.input.type = typeof value === 'boolean' ? 'checkbox' : kind;
      if (kind === 'range') this.output = element('output', this.domElement);
      this.input.addEventListener('input', () => this.take());
      this.min(low).max(high).step(step === undefined ? 'any' : step);
      this.updateDisplay();
    }
    this.name(property);
  }

  take() {
    const value = this.input.type === 'checkbox' ? this.input.checked : Number(this.input.value);
    this.object[this.property] = value;
    this.told(value);
    this.updateDisplay();
  }

  updateDisplay() {
    const value = this.object[this.property];
    if (!this.input) return this;
    if (this.input.type === 'checkbox') this.input.checked = value;
    else if (document.activeElement !== this.input || this.output) this.input.value = Number(value).toFixed(2);
    if (this.output) this.output.textContent = Number(value).toFixed(1);
    return this;
  }

  set(name, value) {
    if (this.input && value !== undefined) this.input[name] = value;
    return this;
  }

  name(text) { this.label.textContent = text; return this; }
  min(value) { return this.set('min', value); }
  max(value) { return this.set('max', value); }
  step(value) { return this.set('step', value); }
  onChange(tell) { this.told = tell; return this; }

  listen() {
    const look = () => {
      if (this.domElement.offsetParent) this.updateDisplay();
      requestAnimationFrame(look);
    };
    look();
    return this;
  }
}

export class GUI {
  constructor({title = 'Controls', parent = null} = {}) {
    this.domElement = element('div', parent, 'panel');
    this.title = element('div', this.domElement, 'title');
    this.title.textContent = title;
    this.content = element('div', this.domElement, 'content');
    this.title.addEventListener('click', () => this.domElement.classList.toggle('closed'));
  }

  addFolder(title) { return new GUI({title, parent: this.content}); }
  add(object, property, low, high, step) { return new Entry(this.content, object, property, low, high, step); }
  open() { this.domElement.classList.remove('closed'); return this; }
  close() { this.domElement.classList.add('closed'); return this; }
}
