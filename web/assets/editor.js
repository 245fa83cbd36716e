// Replaces text areas with an editor: highlighting, line numbers, completion and error marks.
import { autocompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { xml } from "@codemirror/lang-xml";
import { HighlightStyle, StreamLanguage, bracketMatching, syntaxHighlighting } from "@codemirror/language";
import { turtle } from "@codemirror/legacy-modes/mode/turtle";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { rdftlCompletionSource, rdftlLanguage } from "./rdftl_language.js";
import { realCompletionSource, realLanguage } from "./real_language.js";
import { completionSource, ruleLanguage } from "./rule_language.js";

const LANGUAGES = {
  rdfxml: () => xml(),
  turtle: () => StreamLanguage.define(turtle),
  ntriples: () => StreamLanguage.define(turtle),
  jsonld: () => json(),
  rule: (area) => ruleLanguage(new Set(area.dataset.keywords.split(" "))),
  rdftl: (area) => rdftlLanguage(new Set(area.dataset.keywords.split(" "))),
  real: (area) => realLanguage(new Set(area.dataset.keywords.split(" "))),
};
const COMPLETION_SOURCES = { rule: completionSource, rdftl: rdftlCompletionSource, real: realCompletionSource };

const colours = HighlightStyle.define(
  [
    [[tags.tagName, tags.keyword, tags.propertyName], "tag"],
    [[tags.attributeName, tags.variableName, tags.name], "name"],
    [[tags.string, tags.attributeValue], "text"],
    [[tags.number, tags.bool, tags.literal], "value"],
    [[tags.comment, tags.processingInstruction, tags.meta], "quiet"],
  ].map(([tag, name]) => ({ tag, class: `code-${name}` })),
);

export function guessSyntax(text) {
  const start = text.trimStart();
  if (/^(<\?xml|<!--|<rdf:RDF)/.test(start) || /^<[\w.:-]+\s[^>]*xmlns/.test(start)) return "rdfxml";
  if (/^[[{]/.test(start) && /"@(id|context|graph|type)"/.test(start)) return "jsonld";
  return "turtle";
}

const views = new Map();

// The URL of the completions: names of the schema and, if an LMR is chosen, its named rules.
function completionsUrl(area) {
  const field = document.getElementById(area.dataset.completionsFor ?? "");
  return area.dataset.completions + (field?.value ? `?${field.name}=${encodeURIComponent(field.value)}` : "");
}

// Keeps the text in the URL if it fits, so that going back in the browser restores it.
function saveToUrl(area) {
  const url = new URL(area.form.action, window.location.href);
  for (const { name, value } of area.form.elements) {
    if (name === area.name || (value && ["lmr", "name"].includes(name))) url.searchParams.set(name, value);
  }
  if (url.search.length < 7800) window.history.replaceState(window.history.state, "", url);
}

for (const area of document.querySelectorAll("textarea[data-editor]")) {
  const nonce = document.querySelector('meta[name="nonce"]')?.content;
  const syntaxField = document.getElementById(area.dataset.editor);
  const language = new Compartment();
  const chosen = () => LANGUAGES[area.dataset.language || syntaxField?.value || guessSyntax(area.value)](area);
  const complete = area.dataset.completions ? [autocompletion({ override: [COMPLETION_SOURCES[area.dataset.language](() => completionsUrl(area))], icons: false })] : [];
  const view = new EditorView({
    state: EditorState.create({
      doc: area.value,
      extensions: [
        EditorView.cspNonce.of(nonce ?? ""),
        lineNumbers(),
        EditorView.lineWrapping,
        history(),
        drawSelection(),
        highlightActiveLine(),
        bracketMatching(),
        lintGutter(),
        syntaxHighlighting(colours),
        ...complete,
        keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap]), // Tab still moves to the next field
        language.of(chosen()),
        EditorView.editorAttributes.of({ class: area.classList.contains("short") ? "short" : "" }),
        EditorView.contentAttributes.of({ "aria-label": area.getAttribute("aria-label") ?? "Document", id: `${area.id}-editor` }),
        EditorView.updateListener.of((update) => {
          if (!update.docChanged) return;
          area.value = update.state.doc.toString();
          area.dispatchEvent(new Event("input", { bubbles: true }));
        }),
      ],
    }),
  });
  view.scrollDOM.tabIndex = 0; // keyboard scrolling
  view.scrollDOM.setAttribute("role", "group");
  view.scrollDOM.setAttribute("aria-label", "Scrollable text");
  area.after(view.dom);
  area.hidden = true;
  area.required = false; // the browser cannot focus a hidden field; the server reports missing values
  views.set(area.id, view);
  syntaxField?.addEventListener("change", () => view.dispatch({ effects: language.reconfigure(chosen()) }));
  area.addEventListener("paste-text", () =>
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: area.value } }),
  );
  if ("saveToUrl" in area.dataset) {
    let timer;
    area.form.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => saveToUrl(area), 200);
    });
    const flush = () => timer && (clearTimeout(timer), (timer = undefined), saveToUrl(area));
    area.form.addEventListener("submit", flush);
    document.addEventListener("click", flush, true);
  }
  const marks = markErrors(view, JSON.parse(area.dataset.errors || "[]"));
  if (marks.length) view.dispatch({ selection: { anchor: marks[0].from }, scrollIntoView: true });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-line]");
    if (!link) return;
    event.preventDefault();
    const line = view.state.doc.line(Math.min(Number(link.dataset.line), view.state.doc.lines));
    view.dispatch({ selection: { anchor: line.from }, scrollIntoView: true });
    view.focus();
  });
}

function markErrors(view, errors) {
  const marks = errors.filter((error) => error.line).map((error) => {
    const line = view.state.doc.line(Math.min(error.line, view.state.doc.lines));
    if (!error.column) return { from: line.from, to: line.to, severity: error.severity ?? "error", message: error.message };
    // Columns count code points; JavaScript strings count UTF-16 units. Without a length, mark the word at the column.
    const before = [...line.text].slice(0, error.column - 1).join("");
    const rest = line.text.slice(before.length);
    const marked = error.length ? [...rest].slice(0, error.length).join("") : (/^[^\s,;]+/.exec(rest)?.[0] ?? rest.slice(0, 1));
    const from = line.from + before.length;
    return { from, to: from + marked.length, severity: error.severity ?? "error", message: error.message };
  });
  view.dispatch(setDiagnostics(view.state, marks));
  return marks;
}

// Shows the errors that the server reports while the user types.
document.addEventListener("htmx:load", (event) => {
  const report = event.detail.elt.parentElement?.querySelector("[data-errors-for]");
  const view = views.get(report?.dataset.errorsFor);
  if (view) markErrors(view, JSON.parse(report.dataset.errors));
});

// Buttons that insert an example or another text into the editor.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-text]");
  const view = views.get(button?.dataset.into);
  if (!view) return;
  event.preventDefault();
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: button.dataset.text } });
  view.focus();
});

const SUFFIXES = { rdf: "rdfxml", xml: "rdfxml", owl: "rdfxml", ttl: "turtle", nt: "ntriples", jsonld: "jsonld", json: "jsonld" };

// The text of a file; undefined if it is not certainly UTF-8 text. Such a file is sent as it is: the server knows more encodings.
async function readText(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const start = new TextDecoder("latin1").decode(bytes.subarray(0, 200));
  const declared = /<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._:-]+)["']/.exec(start)?.[1] ?? "utf-8";
  if (!/^(utf-?8|us-ascii)$/i.test(declared) || bytes.includes(0)) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

// Loads a chosen file into the editor before it is sent.
const file = document.querySelector("input[data-into]");
file?.addEventListener("change", async () => {
  if (file.files.length !== 1 || file.files[0].size > 2 ** 20) return;
  const area = document.getElementById(file.dataset.into);
  const name = file.files[0].name;
  const suffix = name.split(".").at(-1).toLowerCase();
  const text = suffix in SUFFIXES || suffix === "txt" ? await readText(file.files[0]) : undefined;
  if (text === undefined) return; // the file itself is sent
  area.value = text;
  const syntaxField = document.getElementById(area.dataset.editor);
  syntaxField.value = SUFFIXES[suffix] ?? "";
  syntaxField.dispatchEvent(new Event("change"));
  area.dispatchEvent(new Event("paste-text"));
  const uri = file.form.elements.uri; // the schema form has no URI field
  if (uri?.value.endsWith("/")) uri.value += encodeURIComponent(name);
  file.value = ""; // send the text instead of the file
});
