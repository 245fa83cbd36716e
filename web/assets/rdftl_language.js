// Editor support for RDFTL, the language of event-condition-action rules: highlighting, and completion from the schema.
import { StreamLanguage } from "@codemirror/language";

const WORD = /^(?:[\p{L}_][\p{L}\p{Nd}_]*(?:-+[\p{L}\p{Nd}_]+)*)?(?::[\p{L}\p{Nd}_]+(?:-+[\p{L}\p{Nd}_]+)*)?/u;

export const rdftlLanguage = (keywords) =>
  StreamLanguage.define({
    name: "rdftl",
    startState: () => ({ quote: null }),
    token(stream, state) {
      if (state.quote || stream.match(/^['"]/, false)) {
        state.quote ??= stream.next();
        while (!stream.eol()) {
          if (stream.next() !== state.quote) continue;
          if (stream.peek() === state.quote) stream.next(); // a doubled quote is part of the text
          else {
            state.quote = null;
            break;
          }
        }
        return "string";
      }
      if (stream.eatSpace()) return null;
      if (stream.match(/^(#|\/\/).*/)) return "comment";
      if (stream.match(/^<[^\s<>"{}|\\^`]+>/) || stream.match(/^[a-z][a-z0-9+.-]*:\/\/[^\s()<>'"]+/i)) return "string";
      if (stream.match(/^\$[\p{L}\p{Nd}_-]+/u)) return "attributeName";
      if (stream.match(/^\.(source|arc_name|target|old_target|new_target)\b/)) return "attributeName";
      if (stream.match(/^-?\d+(\.\d+)?([eE][+-]?\d+)?/)) return "number";
      if (stream.match(/^seq\+\+/i)) return "keyword";
      const word = stream.match(WORD)?.[0];
      if (word) return keywords.has(word.toLowerCase()) ? "keyword" : "propertyName";
      stream.next();
      return "operator";
    },
    languageData: { closeBrackets: { brackets: ["(", "[", "'", '"'] }, commentTokens: { line: "#" } },
  });

// Completions depend on the text before the cursor: classes after OF, properties in target( ), source( ) and in the
// middle of a triple, fields after `$delta.`, else variables and keywords.
export function rdftlCompletionSource(currentUrl) {
  let known;
  return async (context) => {
    const before = context.state.sliceDoc(0, context.pos);
    const word = context.matchBefore(/[\p{L}\p{Nd}_:$.-]*/u);
    if (openText(before) || (!word?.text && !context.explicit)) return null;
    known ??= fetch(currentUrl()).then((answer) => (answer.ok ? answer.json() : Promise.reject(answer.status)));
    let words;
    try {
      words = await known;
    } catch {
      known = undefined; // retry the next time
      return null;
    }
    const field = /(\$[\p{L}\p{Nd}_-]+\.)([\w]*)$/u.exec(word?.text ?? "");
    if (field) return { from: context.pos - field[2].length, options: words.fields.map((label) => ({ label, type: "property" })) };
    const from = word?.from ?? context.pos;
    const lead = before.slice(0, from);
    const validFor = /^[\p{L}\p{Nd}_:$+-]*$/u;
    if (/\bof\s+$/i.test(lead)) return { from, options: classes(words), validFor };
    if (/\b(target|source)\(\s*$/i.test(lead)) return { from, options: properties(words), validFor };
    if (inMiddleOfTriple(lead)) return { from, options: [{ label: "seq++", type: "keyword", detail: "next member" }, ...properties(words)], validFor };
    return { from, options: [...variables(before), ...words.keywords.map((label) => ({ label, type: "keyword" }))], validFor };
  };
}

function openText(text) {
  const line = text.slice(text.lastIndexOf("\n") + 1);
  return (line.match(/'/g)?.length ?? 0) % 2 === 1 || (line.match(/"/g)?.length ?? 0) % 2 === 1 || /(^|\s)(#|\/\/)/.test(line);
}

// True after the first comma of an open parenthesis that is no function of a path.
function inMiddleOfTriple(lead) {
  let depth = 0;
  let commas = 0;
  for (let place = lead.length - 1; place >= 0; place -= 1) {
    const character = lead[place];
    if (character === ")") depth += 1;
    else if (character === "," && depth === 0) commas += 1;
    else if (character === "(" && depth > 0) depth -= 1;
    else if (character === "(") return commas === 1 && !/(resource|target|source|element)\s*$/i.test(lead.slice(0, place));
    else if (";".includes(character) && depth === 0) return false;
  }
  return false;
}

function classes(words) {
  const own = words.classes.map(({ name, label }) => ({ label: name, detail: label ?? "class", type: "class", boost: 1 }));
  return [...own, ...words.more_classes.filter((name) => !own.some(({ label }) => label === name)).map((label) => ({ label, type: "class" }))];
}

function properties(words) {
  const own = words.properties.map(({ name, says, label }) => ({ label: name, detail: [label, says].filter(Boolean).join(" · "), type: "property", boost: 1 }));
  return [...own, ...words.more_properties.map((label) => ({ label, type: "property" }))];
}

function variables(text) {
  const defined = [...text.matchAll(/(\$[\p{L}_][\p{L}\p{Nd}_-]*)\s*:?=/gu)].map((match) => match[1]);
  return [...new Set(["$delta", ...defined])].map((label) => ({ label, type: "variable", boost: 2 }));
}
