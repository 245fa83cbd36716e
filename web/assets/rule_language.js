// Editor support for the rule language: highlighting, and completion from the schema.
import { StreamLanguage } from "@codemirror/language";

const NAME = /^[\p{L}\p{Nl}_][\p{L}\p{Nl}\p{Nd}_-]*/u;

// `keywords` come from the server, which derives them from its table of operators.
export const ruleLanguage = (keywords) => StreamLanguage.define({
  name: "rule",
  startState: () => ({ inText: false, afterDot: false }),
  token(stream, state) {
    if (state.inText || stream.eat("'")) {
      state.inText = !stream.match(/^(?:[^']|'')*'(?!')/);
      if (state.inText) stream.skipToEnd();
      return "string";
    }
    if (stream.eatSpace()) return null;
    const afterDot = state.afterDot;
    state.afterDot = false;
    if (stream.match(/^<[^\s<>"{}|\\^`]+>/)) return "string";
    if (stream.match(/^-?\d+(\.\d+)?([eE][+-]?\d+)?/)) return "number";
    if (stream.match(/^[\p{L}_][\p{L}\p{Nd}_-]*:[\p{L}\p{Nd}_][\p{L}\p{Nd}_-]*/u)) return "propertyName";
    const word = stream.match(NAME)?.[0];
    if (word) {
      if (afterDot) return "attributeName";
      if (/^(true|false)$/i.test(word)) return "bool";
      return keywords.has(word.toLowerCase()) ? "keyword" : "variableName";
    }
    state.afterDot = stream.next() === ".";
    return "operator";
  },
  languageData: { closeBrackets: { brackets: ["(", "'"] } },
});

// Completions depend on the text before the cursor: classes after `search`, properties after a dot, else variables and
// keywords.
export function completionSource(currentUrl) {
  const requests = new Map();
  const load = () => {
    const url = currentUrl();
    if (!requests.has(url)) requests.set(url, fetch(url).then((answer) => (answer.ok ? answer.json() : Promise.reject(answer.status))));
    return requests.get(url);
  };
  return async (context) => {
    const before = context.state.sliceDoc(0, context.pos);
    if (openText(before)) return null;
    const path = context.matchBefore(/[\p{L}_][\p{L}\p{Nd}_-]*(?:\.[\p{L}\p{Nd}_:-]+\??)*\.[\p{L}\p{Nd}_:-]*/u);
    const word = context.matchBefore(/[\p{L}_][\p{L}\p{Nd}_:-]*/u);
    if (!path && !word && !context.explicit) return null;
    let known;
    try {
      known = await load();
    } catch {
      requests.delete(currentUrl()); // retry the next time
      return null;
    }
    if (path) return properties(known, context, path);
    const from = word?.from ?? context.pos;
    const lead = before.slice(0, from - (context.pos - before.length));
    if (/(^|\s)search\s+(?:[^,]*,)*\s*$/i.test(lead) && !/\b(register|where|return)\b/i.test(lead)) return { from, options: classes(known), validFor: /^[\p{L}\p{Nd}_:-]*$/u };
    const variables = [...new Set([...declared(context.state.doc.toString()).keys()])].map((label) => ({ label, type: "variable", boost: 1 }));
    return { from, options: [...variables, ...known.keywords.map((label) => ({ label, type: "keyword" }))], validFor: /^[\p{L}\p{Nd}_-]*$/u };
  };
}

function openText(text) {
  return (text.match(/'/g)?.length ?? 0) % 2 === 1;
}

function classes(known) {
  const rules = (known.rules ?? []).map(({ name }) => ({ label: name, detail: "rule", type: "class" }));
  return [...rules, ...known.classes.map(({ name, iri, label }) => ({ label: name, detail: label ?? (iri === name ? "" : "class"), type: "class" }))];
}

// Maps the variables of the `search` clause to their classes.
function declared(text) {
  const searched = /search\s+([\s\S]*?)(?=\b(?:register|where|return)\b|$)/i.exec(text)?.[1] ?? "";
  const found = new Map();
  for (const extension of searched.split(",")) {
    const [name, variable] = extension.trim().split(/\s+/);
    if (variable) found.set(variable, name);
  }
  return found;
}

function properties(known, context, path) {
  const steps = path.text.split(".");
  const typed = steps.pop();
  const byIri = new Map(known.classes.map((one) => [one.iri, one]));
  // A class takes precedence over a rule of the same name.
  const byName = new Map([...(known.rules ?? []).map(({ name, iri }) => [name, byIri.get(iri)]), ...known.classes.map((one) => [one.name, one])]);
  const [variable, ...path_] = steps;
  let at = byName.get(declared(context.state.doc.toString()).get(variable));
  for (const step of path_) {
    const property = fitting(known, at).find(({ name }) => name === step.replace(/\?$/, ""));
    at = property?.to ? byIri.get(property.to) : undefined;
  }
  const options = fitting(known, at).map(({ name, any, says, strong, label }) => ({
    label: name + (any ? "?" : ""),
    detail: [label, says, strong && "strong"].filter(Boolean).join(" · "),
    type: "property",
  }));
  return { from: context.pos - typed.length, options, validFor: /^[\p{L}\p{Nd}_:-]*\??$/u };
}

// The own and inherited properties of a class; all properties if the class is unknown.
function fitting(known, at) {
  if (!at) return known.properties;
  return known.properties.filter(({ of }) => !of.length || of.some((domain) => domain === at.iri || at.above.includes(domain)));
}
