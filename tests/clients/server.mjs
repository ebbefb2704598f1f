// `lockstep serve` as a child of a test: started on a free port of loopback, its log read as JSON, stopped by a signal.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {createInterface} from 'node:readline';

const kLoadSeconds = 60;
const kStopSeconds = 30;

export class Server {
  /// Starts `program serve` and waits until the model is loaded. `options` are further words of the command line.
  static async start(program, options = []) {
    const server = new Server();
    server.child = spawn(program, ['serve', '--port', '0', '--log-json', ...options],
                         {stdio: ['ignore', 'ignore', 'pipe']});
    server.exited = new Promise((resolve) => server.child.once('exit', (code, signal) => resolve({code, signal})));
    server.url = await new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`not ready after ${kLoadSeconds} s: ${server.last_words()}`)),
                              kLoadSeconds * 1000);
      server.exited.then(({code, signal}) => {
        clearTimeout(late);
        reject(new Error(`lockstep serve ended before it was ready (${code ?? signal}): ${server.last_words()}`));
      });
      server.child.once('error', reject);
      createInterface({input: server.child.stderr}).on('line', (line) => {
        const entry = server.read(line);
        if (entry.event !== 'ready') return;
        clearTimeout(late);
        resolve(entry.url);
      });
    });
    return server;
  }

  log = [];
  requests = [];  // those entries of the log that are about a POST

  read(line) {
    let entry;
    try {
      entry = JSON.parse(line);
    } catch {
      entry = {event: line};  // what was written before the log began
    }
    this.log.push(entry);
    if (entry.event === 'request' && entry.method === 'POST') this.requests.push(entry);
    return entry;
  }

  last_words() {
    return this.log.slice(-5).map(({event}) => event).join('; ');
  }

  /// Waits until `is_so()` is true.
  static async until(what, is_so, seconds = 15) {
    const end = Date.now() + seconds * 1000;
    while (!(await is_so())) {
      assert.ok(Date.now() < end, `${what}: not within ${seconds} s`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  async slots() {
    return (await fetch(`${this.url}/slots`)).json();
  }

  /// No answer is being made any more.
  async is_idle() {
    return (await this.slots()).every((slot) => !slot.is_processing);
  }

  /// A value of /metrics by its name and labels.
  async metric(name) {
    const lines = (await (await fetch(`${this.url}/metrics`)).text()).split('\n');
    return Number(lines.find((line) => line.startsWith(`${name} `))?.slice(name.length + 1));
  }

  /// Asks it to end, and holds it to a clean end.
  async stop() {
    this.child.kill('SIGTERM');
    const late = setTimeout(() => this.child.kill('SIGKILL'), kStopSeconds * 1000);
    const {code, signal} = await this.exited;
    clearTimeout(late);
    assert.deepEqual({code, signal}, {code: 0, signal: null}, `the end of the server: ${this.last_words()}`);
    assert.deepEqual(this.log.filter(({level}) => level === 'error'), [], 'errors in the log of the server');
  }
}
