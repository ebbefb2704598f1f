// The recipes of docs/clients.md as data: for each heading the files that it says to write and the commands to run.
//
// A file is a line that ends in a name between back quotes and a colon, then a fenced block; commands are the blocks
// marked `sh`.
import {readFile} from 'node:fs/promises';

/// [{name, files: [{path, text}], commands: "..."}], only those with commands.
export async function read_recipes(path) {
  const recipes = [];
  let block = null, file = null;
  for (const line of (await readFile(path, 'utf8')).split('\n')) {
    if (block) {
      if (line !== '```') {
        block.text += `${line}\n`;
        continue;
      }
      const recipe = recipes.at(-1);
      if (recipe && file) recipe.files.push({path: file, text: block.text});
      else if (recipe && block.language === 'sh') recipe.commands += block.text;
      block = file = null;
    } else if (line.startsWith('```')) {
      block = {language: line.slice(3), text: ''};
    } else if (line.startsWith('## ')) {
      recipes.push({name: line.slice(3), files: [], commands: ''});
    } else if (/^`~\/[^`]+`:$/.test(line)) {
      file = line.slice(3, -2);
    } else if (line !== '') {
      file = null;
    }
  }
  return recipes.filter(({commands}) => commands !== '');
}
