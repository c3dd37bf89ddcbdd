import { parseSync } from "vite";
import { expect, test } from "vitest";
import { strings } from "../../src/strings";

const SOURCES: Record<string, string> = import.meta.glob("../../src/**/*.{ts,tsx}", { query: "?raw", import: "default", eager: true });
const files = Object.entries(SOURCES).filter(([path]) => !path.includes("/src/strings/"));

/** Names of keys, of the product and of interfaces. They are the same in each language. */
const NAMES = new Set([
  ...["Alt", "Alt N", "Alt+N", "Alt+P", "AltGraph", "ArrowDown", "ArrowLeft", "ArrowRight", "ArrowUp", "Control+K", "Ctrl", "Ctrl C"],
  ...["Ctrl K", "Dead", "Down", "Enter", "Esc", "Escape", "KeyP", "Process", "Shift", "Shift+Tab", "Tab", "Up"],
  ...["acp-gateway", "Content-Range", "Files", "Notification", "noopener noreferrer", "PRE", "TABLE", "TD", "IMG"],
]);
/** Texts for programs: errors that no person can cause, queries, HTML, and an answer to an agent. */
const TECHNICAL = new Set(["index.html has no place for the page", "input, select, textarea", ".popover-box, dialog, .requests", ".transcript, .requests", "(pointer: coarse)", '<a href="', '<img src="', "A person refused it.", 'read -rs KEY && curl -s "', '" -H "Authorization: Bearer $KEY"']);
const TEXT_ATTRIBUTES = ["title", "aria-label", "placeholder", "label", "alt", "head"];
const CODE_ATTRIBUTES = ["className", "d", "viewBox"];

interface Node {
  type: string;
  [member: string]: unknown;
}

function isNode(value: unknown): value is Node {
  return typeof (value as Node | null)?.type === "string";
}

function children(node: Node): Node[] {
  return Object.values(node).flat().filter(isNode);
}

/** The text of a literal, of a part of a template, or between tags. */
function textOf(node: Node): string {
  if (node.type === "TemplateElement") return (node["value"] as { cooked: string }).cooked;
  return (node.type === "Literal" || node.type === "JSXText") && typeof node["value"] === "string" ? node["value"] : "";
}

function isAttribute(node: Node, names: string[]): boolean {
  return node.type === "JSXAttribute" && names.includes(String((node["name"] as Node)["name"]));
}

/** The texts that an expression may result in, without the operands of its conditions. */
function results(node: Node): string[] {
  if (node.type === "ConditionalExpression") return [node["consequent"], node["alternate"]].filter(isNode).flatMap(results);
  if (node.type === "LogicalExpression") return [node["left"], node["right"]].filter(isNode).flatMap(results);
  if (["JSXExpressionContainer", "TemplateLiteral"].includes(node.type)) return children(node).flatMap(results);
  return [textOf(node)];
}

/** The texts for people in a part of a file. */
function texts(node: Node): string[] {
  if (/^(Import|Export(All)|TS.*(Type|Declaration))/.test(node.type) || isAttribute(node, CODE_ATTRIBUTES)) return [];
  const shown = isAttribute(node, TEXT_ATTRIBUTES) || node.type === "JSXElement" || node.type === "JSXFragment";
  const direct = shown ? [node["children"] ?? node["value"]].flat().filter(isNode).flatMap(results).filter(hasLetters) : [];
  const own = [textOf(node)].filter((text) => /\p{L}[^\p{L}\s]?\s+\p{L}|^\s*\p{Lu}\p{L}/u.test(text));
  return [...direct, ...own, ...children(node).flatMap(texts)];
}

function hasLetters(text: string): boolean {
  return /\p{L}/u.test(text);
}

function textsOf(path: string, source: string): string[] {
  const { program, errors } = parseSync(path, source);
  expect(errors, path).toEqual([]);
  const found = texts(program as unknown as Node).map((text) => text.trim());
  return [...new Set(found)].filter((text) => !NAMES.has(text) && !TECHNICAL.has(text));
}

test.each([
  ["<p>words</p>", ["words"]],
  ["<p>{busy === 'wait' ? 'stop' : `send ${count}`}</p>", ["stop", "send"]],
  ["<p title={busy && 'stop'} className='a b' />", ["stop"]],
  ["<Popover name='The agent' />", ["The agent"]],
  ["const tone = 'bad'; const words = 'not at all';", ["not at all"]],
  ["<p><kbd>Enter</kbd> · {strings.common.send}</p>", []],
])("the texts in %s", (source, found) => expect(textsOf("a.tsx", source)).toEqual(found));

test("no text for people stands outside of src/strings", () => {
  expect(files.length).toBeGreaterThan(100);
  for (const [path, source] of files) expect(textsOf(path, source), `${path}: move these texts to src/strings`).toEqual([]);
});

test("every text is used", () => {
  const used = new Set(files.flatMap(([, source]) => source.match(/\bstrings\.\w+\.\w+/g) ?? []));
  const all = Object.entries(strings).flatMap(([place, own]) => Object.keys(own).map((name) => `strings.${place}.${name}`));
  expect(all.filter((name) => !used.has(name))).toEqual([]);
});

test("every name and every technical text of the lists here is in the sources", () => {
  const all = files.map(([, source]) => source.replaceAll("\\", "")).join("\n");
  expect([...NAMES, ...TECHNICAL].filter((text) => !all.includes(text))).toEqual([]);
});
