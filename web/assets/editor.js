// A text area becomes an editor with highlighting, line numbers, and errors at their lines.
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
import { completing, rules } from "./rule_language.js";

const LANGUAGES = {
  rdfxml: () => xml(),
  turtle: () => StreamLanguage.define(turtle),
  ntriples: () => StreamLanguage.define(turtle),
  jsonld: () => json(),
  rule: () => rules,
};

const colours = HighlightStyle.define(
  [
    [[tags.tagName, tags.keyword, tags.propertyName], "tag"],
    [[tags.attributeName, tags.variableName, tags.name], "name"],
    [[tags.string, tags.attributeValue], "text"],
    [[tags.number, tags.bool, tags.literal], "value"],
    [[tags.comment, tags.processingInstruction, tags.meta], "quiet"],
  ].map(([tag, name]) => ({ tag, class: `code-${name}` })),
);

export function guess(text) {
  const start = text.trimStart();
  if (/^(<\?xml|<!--|<rdf:RDF)/.test(start) || /^<[\w.:-]+\s[^>]*xmlns/.test(start)) return "rdfxml";
  if (/^[[{]/.test(start) && /"@(id|context|graph|type)"/.test(start)) return "jsonld";
  return "turtle";
}

const views = new Map();

// Where the words are told that a text can be made of: those of the schema, and of what is chosen beside it.
function wordsFor(area) {
  const of = document.getElementById(area.dataset.wordsOf ?? "");
  return area.dataset.words + (of?.value ? `?${of.name}=${encodeURIComponent(of.value)}` : "");
}

// What is written stands in the address, as far as it fits, so that whoever comes back finds it.
function keepAddress(area) {
  const address = new URL(area.form.action, window.location.href);
  for (const { name, value } of area.form.elements) {
    if (name === area.name || (value && ["lmr", "name"].includes(name))) address.searchParams.set(name, value);
  }
  if (address.search.length < 7800) window.history.replaceState(window.history.state, "", address);
}

for (const area of document.querySelectorAll("textarea[data-editor]")) {
  const nonce = document.querySelector('meta[name="nonce"]')?.content;
  const choice = document.getElementById(area.dataset.editor);
  const language = new Compartment();
  const chosen = () => LANGUAGES[area.dataset.language || choice?.value || guess(area.value)]();
  const complete = area.dataset.words ? [autocompletion({ override: [completing(() => wordsFor(area))], icons: false })] : [];
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
        keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap]), // Tab goes on to the next field
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
  view.scrollDOM.tabIndex = 0; // who has no mouse can scroll it
  view.scrollDOM.setAttribute("role", "group");
  view.scrollDOM.setAttribute("aria-label", "The text, to be scrolled");
  area.after(view.dom);
  area.hidden = true;
  area.required = false; // what is hidden cannot be pointed at; the server says what is missing
  views.set(area.id, view);
  choice?.addEventListener("change", () => view.dispatch({ effects: language.reconfigure(chosen()) }));
  area.addEventListener("paste-text", () =>
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: area.value } }),
  );
  if ("address" in area.dataset) {
    let timer;
    area.form.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => keepAddress(area), 200);
    });
    const leaving = () => timer && (clearTimeout(timer), (timer = undefined), keepAddress(area));
    area.form.addEventListener("submit", leaving);
    document.addEventListener("click", leaving, true);
  }
  const flaws = JSON.parse(area.dataset.flaws || "[]");
  const marks = mark(view, flaws);
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

function mark(view, flaws) {
  const marks = flaws.filter((flaw) => flaw.line).map((flaw) => {
    const line = view.state.doc.line(Math.min(flaw.line, view.state.doc.lines));
    if (!flaw.column) return { from: line.from, to: line.to, severity: "error", message: flaw.message };
    // Columns count characters, of which some are two here. Where no length is told, the word at the place is meant.
    const before = [...line.text].slice(0, flaw.column - 1).join("");
    const rest = line.text.slice(before.length);
    const meant = flaw.length ? [...rest].slice(0, flaw.length).join("") : (/^[^\s,;]+/.exec(rest)?.[0] ?? rest.slice(0, 1));
    const from = line.from + before.length;
    return { from, to: from + meant.length, severity: "error", message: flaw.message };
  });
  view.dispatch(setDiagnostics(view.state, marks));
  return marks;
}

// What is wrong with a text that is being written, as the server says.
document.addEventListener("htmx:load", (event) => {
  const told = event.detail.elt.parentElement?.querySelector("[data-flaws-for]");
  const view = views.get(told?.dataset.flawsFor);
  if (view) mark(view, JSON.parse(told.dataset.flaws));
});

// An example, or a text from elsewhere on the page, put into the editor.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-text]");
  const view = views.get(button?.dataset.into);
  if (!view) return;
  event.preventDefault();
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: button.dataset.text } });
  view.focus();
});

const SUFFIXES = { rdf: "rdfxml", xml: "rdfxml", owl: "rdfxml", ttl: "turtle", nt: "ntriples", jsonld: "jsonld", json: "jsonld" };

// A file that is chosen is shown before it is sent.
const file = document.querySelector("input[data-into]");
file?.addEventListener("change", async () => {
  if (file.files.length !== 1 || file.files[0].size > 2 ** 20) return;
  const area = document.getElementById(file.dataset.into);
  const name = file.files[0].name;
  area.value = await file.files[0].text();
  const choice = document.getElementById(area.dataset.editor);
  choice.value = SUFFIXES[name.split(".").at(-1).toLowerCase()] ?? "";
  choice.dispatchEvent(new Event("change"));
  area.dispatchEvent(new Event("paste-text"));
  const uri = file.form.elements.uri; // a schema has none
  if (uri?.value.endsWith("/")) uri.value += encodeURIComponent(name);
  file.value = ""; // the text is what is sent
});
