// What the tests of the three families of client libraries share: the libraries themselves, a server with the demo
// model, and questions to which that model knows the answer (docs/clients.md; the README lists more of them).
//
//   node TEST.mjs FOLDER LOCKSTEP      FOLDER has the packages of package.json, LOCKSTEP is the program
import {createRequire} from 'node:module';
import {join, resolve} from 'node:path';
import {after, before} from 'node:test';

import {Server} from '../server.mjs';

const [folder, program] = process.argv.slice(2);
if (!program) throw new Error('expected two arguments: the folder of the installed packages and the lockstep program');

/// A package from that folder.
export const need = createRequire(join(resolve(folder), 'package.json'));

export const kModel = 'lockstep-demo';
export const kSum = {question: 'What is 123 + 268?', answer: '391'};
export const kThoughtSum = {question: 'What is 347 + 586?', answer: '933'};
export const kFact = {question: 'What color is the sky on a clear day?', answer: 'Blue.'};
export const kWeather = {
  question: 'What is the weather in Rome?',
  city: 'Rome',
  result: {weather: 'sunny'},
  answer: /^sunny\.$/,
  name: 'get_weather',
  description: 'Get the current weather in a city',
  parameters: {
    type: 'object',
    properties: {city: {type: 'string', description: 'Name of the city'}},
    required: ['city'],
  },
};
export const kEndOfSentence = 1;  // the demo model's token that ends an answer

/// A prompt that no context of the demo model takes.
export const too_long = () => 'a long story '.repeat(200000);

/// The running server; there from the first test on.
export const state = {server: null, url: null};

before(async () => {
  state.server = await Server.start(program, ['--context', '16384', '--temperature', '0']);
  state.url = state.server.url;
}, {timeout: 120000});
after(() => state.server?.stop());

/// A second server, as a rule needs it: `with_server(options, async (server) => ...)`.
export async function with_server(options, body) {
  const server = await Server.start(program, options);
  try {
    await body(server);
  } finally {
    await server.stop();
  }
}

export {Server};
