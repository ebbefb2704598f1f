// Chromium, driven through its pipe, so that the tests need nothing but it and node. A page is used as people use it:
// controls are found by their role and name in the accessibility tree, and mouse and keys are real events.
import {spawn} from 'node:child_process';
import {mkdtemp, rm, writeFile} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

const kPatience_ms = 10000;  // until something that must come is said to be missing
const kKeys = {Enter: [13, '\r'], Tab: [9, ''], Escape: [27, ''], ArrowUp: [38, ''], ' ': [32, ' ']};
const kModifiers = {alt: 1, control: 2, shift: 8};

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export class Browser {
  #process;
  #folder;
  #replies = new Map();
  #listeners = new Map();  // session -> function of (method, params)
  #last_id = 0;

  static async start(program = 'chromium') {
    const browser = new Browser();
    browser.#folder = await mkdtemp(join(tmpdir(), 'page-test-'));
    const flags = ['--headless=new', '--remote-debugging-pipe', '--no-first-run', '--disable-gpu', '--no-sandbox',
      '--disable-dev-shm-usage', '--disable-background-networking', '--disable-component-update', '--disable-sync',
      '--hide-scrollbars', '--mute-audio', `--user-data-dir=${browser.#folder}`];
    browser.#process = spawn(program, flags, {stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe']});
    let rest = '';
    browser.#process.stdio[4].setEncoding('utf8').on('data', (text) => {
      const messages = (rest + text).split('\0');
      rest = messages.pop();
      for (const message of messages) browser.#take(JSON.parse(message));
    });
    await Promise.race([
      browser.send('Browser.getVersion'),
      new Promise((_, fail) => browser.#process.on('error', fail)),
      new Promise((_, fail) => browser.#process.on('exit', (code) => fail(new Error(`${program} ended: ${code}`)))),
    ]);
    return browser;
  }

  #take({id, sessionId, method, params, result, error}) {
    if (id === undefined) return this.#listeners.get(sessionId)?.(method, params);
    const {done, fail, name} = this.#replies.get(id);
    this.#replies.delete(id);
    if (error) fail(new Error(`${name}: ${error.message}`));
    else done(result);
  }

  send(name, params = {}, sessionId = undefined) {
    const id = ++this.#last_id;
    return new Promise((done, fail) => {
      this.#replies.set(id, {done, fail, name});
      this.#process.stdio[3].write(`${JSON.stringify({id, method: name, params, sessionId})}\0`);
    });
  }

  /// A page with a storage of its own, or that of another page.
  async open(url, {like = null} = {}) {
    const context = like?.context ?? (await this.send('Target.createBrowserContext')).browserContextId;
    const {targetId} = await this.send('Target.createTarget', {url: 'about:blank', browserContextId: context,
      newWindow: true});
    const {sessionId} = await this.send('Target.attachToTarget', {targetId, flatten: true});
    const page = new Page(this, sessionId, targetId, context);
    this.#listeners.set(sessionId, (method, params) => page.take(method, params));
    for (const domain of ['Page', 'Runtime', 'Network', 'Log', 'Accessibility', 'DOM'])
      await page.send(`${domain}.enable`);
    await page.send('Emulation.setFocusEmulationEnabled', {enabled: true});  // keys reach windows behind others too
    await page.resize(1280, 800);
    await page.go(url);
    return page;
  }

  async close() {
    const ended = new Promise((done) => this.#process.on('exit', done));
    await this.send('Browser.close').catch(() => {});
    await ended;
    await rm(this.#folder, {recursive: true, force: true, maxRetries: 5});
  }
}

export class Page {
  urls = [];      // of every request
  problems = [];  // exceptions, refused by the policy, and whatever else the console shows as an error
  #is_loaded = () => {};

  constructor(browser, session, target, context) {
    this.browser = browser;
    this.session = session;
    this.target = target;
    this.context = context;
  }

  send(method, params) {
    return this.browser.send(method, params, this.session);
  }

  take(method, params) {
    if (method === 'Network.requestWillBeSent') this.urls.push(params.request.url);
    if (method === 'Page.loadEventFired') this.#is_loaded();
    if (method === 'Page.javascriptDialogOpening') this.problems.push(`dialog: ${params.message}`);
    if (method === 'Runtime.exceptionThrown') this.problems.push(params.exceptionDetails.exception?.description);
    // An answer with an error status is logged by the network, and is no fault of the page.
    if (method === 'Log.entryAdded' && params.entry.level === 'error' && params.entry.source !== 'network')
      this.problems.push(params.entry.text);
  }

  async go(url) {
    const loaded = new Promise((done) => { this.#is_loaded = done; });
    await this.send('Page.navigate', {url});
    await loaded;
  }

  async reload() {
    const loaded = new Promise((done) => { this.#is_loaded = done; });
    await this.send('Page.reload');
    await loaded;
  }

  close() {
    return this.browser.send('Target.closeTarget', {targetId: this.target});
  }

  resize(width, height) {
    return this.send('Emulation.setDeviceMetricsOverride', {width, height, deviceScaleFactor: 1, mobile: false});
  }

  prefer(scheme) {
    return this.send('Emulation.setEmulatedMedia', {features: [{name: 'prefers-color-scheme', value: scheme}]});
  }

  /// The value of a function of plain values, run in the page.
  async eval(call, ...args) {
    const expression = `(${call})(...${JSON.stringify(args)})`;
    const {result, exceptionDetails} =
        await this.send('Runtime.evaluate', {expression, awaitPromise: true, returnByValue: true});
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /// Waits until the function gives something true, and gives that.
  async until(what, call, ...args) {
    const end = Date.now() + kPatience_ms;
    for (;;) {
      const value = await this.eval(call, ...args);
      if (value) return value;
      if (Date.now() > end) throw new Error(`${what}: did not come; the page says:\n${await this.text()}`);
      await sleep(20);
    }
  }

  text(selector = 'body') {
    return this.eval((name) => document.querySelector(name)?.innerText ?? '', selector);
  }

  sees(text, selector = 'body') {
    return this.until(`"${text}"`, (words, name) => document.querySelector(name)?.innerText.includes(words), text,
        selector);
  }

  /// The last control of that role and accessible name, as a DOM node's id; waits for it.
  async find(role, name) {
    const end = Date.now() + kPatience_ms;
    for (;;) {
      const {root} = await this.send('DOM.getDocument', {depth: 0});
      const {nodes} = await this.send('Accessibility.queryAXTree',
          {backendNodeId: root.backendNodeId, role, accessibleName: name});
      const node = nodes.filter((one) => !one.ignored).at(-1);
      if (node) return node.backendDOMNodeId;
      if (Date.now() > end) throw new Error(`${role} "${name}": not there; the page says:\n${await this.text()}`);
      await sleep(20);
    }
  }

  async has(role, name) {
    const {root} = await this.send('DOM.getDocument', {depth: 0});
    const {nodes} = await this.send('Accessibility.queryAXTree',
        {backendNodeId: root.backendNodeId, role, accessibleName: name});
    return nodes.some((one) => !one.ignored);
  }

  async click(role, name) {
    const backendNodeId = await this.find(role, name);
    await this.send('DOM.scrollIntoViewIfNeeded', {backendNodeId});
    const {quads} = await this.send('DOM.getContentQuads', {backendNodeId});
    const x = (quads[0][0] + quads[0][4]) / 2, y = (quads[0][1] + quads[0][5]) / 2;
    for (const type of ['mousePressed', 'mouseReleased'])
      await this.send('Input.dispatchMouseEvent', {type, x, y, button: 'left', clickCount: 1});
  }

  /// Puts text where the focus is.
  type(text) {
    return this.send('Input.insertText', {text});
  }

  /// Replaces what a field holds.
  async fill(role, name, text) {
    await this.send('DOM.focus', {backendNodeId: await this.find(role, name)});
    await this.eval(() => document.activeElement.select());
    if (text) return this.type(text);
    await this.eval(() => document.execCommand('delete'));
  }

  /// Chooses by the visible words.
  async choose(name, option) {
    const {object} = await this.send('DOM.resolveNode', {backendNodeId: await this.find('combobox', name)});
    await this.send('Runtime.callFunctionOn', {objectId: object.objectId, arguments: [{value: option}],
      functionDeclaration: `function (words) {
        this.value = [...this.options].find((option) => option.text === words).value;
        for (const type of ['input', 'change']) this.dispatchEvent(new Event(type, {bubbles: true}));
      }`});
  }

  async press(key, ...modifiers) {
    const [code, text] = kKeys[key];
    const params = {key, code: key === ' ' ? 'Space' : key, windowsVirtualKeyCode: code,
      modifiers: modifiers.reduce((sum, name) => sum | kModifiers[name], 0)};
    const down = text ? {type: 'keyDown', text} : {type: 'rawKeyDown'};
    await this.send('Input.dispatchKeyEvent', {...down, ...params});
    await this.send('Input.dispatchKeyEvent', {type: 'keyUp', ...params});
  }

  /// The role and name of what has the focus.
  async focus() {
    const {result} = await this.send('Runtime.evaluate', {expression: 'document.activeElement'});
    const {nodes} = await this.send('Accessibility.getPartialAXTree',
        {objectId: result.objectId, fetchRelatives: false});
    return `${nodes[0].role?.value} "${nodes[0].name?.value ?? ''}"`;
  }

  /// Presses Tab until the focus is there.
  async tab_to(what, ...modifiers) {
    const seen = [];
    for (let i = 0; i < 80; ++i) {
      await this.press('Tab', ...modifiers);
      seen.push(await this.focus());
      if (seen.at(-1) === what) return;
    }
    throw new Error(`${what}: not reached by Tab, only ${[...new Set(seen)].join(', ')}`);
  }

  async shot(file) {
    const {data} = await this.send('Page.captureScreenshot', {format: 'png'});
    await writeFile(file, Buffer.from(data, 'base64'));
  }
}
