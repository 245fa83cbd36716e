// Editor support for ReAL, the language of programs: highlighting, and completion from the schema.
import { StreamLanguage } from "@codemirror/language";

const CLOSING = { '"': '"', "'": "'", "“": "”" };

export const realLanguage = (keywords) =>
  StreamLanguage.define({
    name: "real",
    startState: () => ({ quote: null }),
    token(stream, state) {
      if (state.quote || stream.match(/^["'“]/, false)) {
        state.quote ??= CLOSING[stream.next()];
        while (!stream.eol()) {
          if (stream.next() !== state.quote) continue;
          if (stream.peek() === state.quote && state.quote !== "”") stream.next(); // a doubled quote is part of the text
          else {
            state.quote = null;
            break;
          }
        }
        return "string";
      }
      if (stream.eatSpace()) return null;
      if (stream.match(/^\/\/.*/)) return "comment";
      if (stream.match(/^<[^\s<>"{}|\\^`]+>/)) return "propertyName";
      if (stream.match(/^[?$][\p{L}_]?[\p{L}\p{Nd}_-]*/u)) return "variableName";
      if (stream.match(/^(?:[\p{L}_][\p{L}\p{Nd}_-]*)?:[\p{L}\p{Nd}_](?:[\p{L}\p{Nd}_.-]*[\p{L}\p{Nd}_-])?/u)) return "propertyName";
      if (stream.match(/^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?/)) return "number";
      const word = stream.match(/^[\p{L}_][\p{L}\p{Nd}_-]*/u)?.[0];
      if (word) return /^(true|false)$/i.test(word) ? "bool" : keywords.has(word) ? "keyword" : "string";
      stream.next();
      return "operator";
    },
    languageData: { closeBrackets: { brackets: ["(", "[", "{", "'", '"'] }, commentTokens: { line: "//" } },
  });

// Completions depend on the text before the cursor: actions after CALL, SPAWN and EXPAND, classes as the object of
// rdf:type, variables within the parentheses of a triple, else properties and keywords.
export function realCompletionSource(currentUrl) {
  let known;
  return async (context) => {
    const before = context.state.sliceDoc(0, context.pos);
    const word = context.matchBefore(/[?$]?[\p{L}\p{Nd}_:.-]*/u);
    if (openText(before) || (!word?.text && !context.explicit)) return null;
    known ??= fetch(currentUrl()).then((answer) => (answer.ok ? answer.json() : Promise.reject(answer.status)));
    let words;
    try {
      words = await known;
    } catch {
      known = undefined; // retry the next time
      return null;
    }
    const from = word?.from ?? context.pos;
    const lead = before.slice(0, from);
    const validFor = /^[?$]?[\p{L}\p{Nd}_:.-]*$/u;
    if (/\b(CALL|SPAWN|EXPAND)\s+$/.test(lead)) return { from, options: actions(words), validFor };
    const place = placeInTriple(lead);
    if (place === null) return { from, options: [...properties(words), ...keywords(words)], validFor };
    const options = variables(context.state.doc.toString(), from);
    if (place.commas === 1 && /rdf:type\s*$/.test(place.head)) options.push(...named(words.classes, "class"));
    return { from, options, validFor };
  };
}

function openText(text) {
  const line = text.slice(text.lastIndexOf("\n") + 1);
  return (line.match(/"/g)?.length ?? 0) % 2 === 1 || (line.match(/'/g)?.length ?? 0) % 2 === 1 || /(^|\s)\/\//.test(line);
}

// The text before the open parenthesis of a triple or call, and the commas since; null outside of one.
function placeInTriple(lead) {
  let depth = 0;
  let commas = 0;
  for (let place = lead.length - 1; place >= 0; place -= 1) {
    const character = lead[place];
    if (")]}".includes(character)) depth += 1;
    else if (character === "," && depth === 0) commas += 1;
    else if ("([{".includes(character) && depth > 0) depth -= 1;
    else if (character === "(") {
      const head = lead.slice(0, place);
      return /[\p{L}\p{Nd}_>?-]\s*$/u.test(head) && !/\b(AND|OR|UNION|NO|FIRST|LAST|REPEAT|DO)\s*$/.test(head) ? { head, commas } : null;
    } else if ("[{".includes(character)) return null;
  }
  return null;
}

const named = (entries, type) => entries.map(({ name, label }) => ({ label: name, detail: label ?? type, type, boost: 1 }));
const properties = (words) => words.properties.map(({ name, label }) => ({ label: name, detail: label ?? "", apply: `${name}(`, type: "property", boost: 1 }));
const keywords = (words) => words.keywords.map((label) => ({ label, type: "keyword" }));

function actions(words) {
  const call = (type) => ({ name, detail }) => ({ label: name, detail, apply: `${name}(`, type });
  return [...words.actions.map(call("function")), ...words.primitives.map(call("function"))];
}

function variables(text, from) {
  const found = [...text.matchAll(/[?$]([\p{L}_][\p{L}\p{Nd}_-]*)/gu)].filter((match) => match.index !== from).map((match) => `?${match[1]}`);
  return [...new Set(found)].map((label) => ({ label, type: "variable", boost: 2 }));
}
