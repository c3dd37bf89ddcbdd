// Splits code into words with their kind, for the style sheet. It runs in the worker.

import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import makefile from "highlight.js/lib/languages/makefile";
import markdown from "highlight.js/lib/languages/markdown";
import php from "highlight.js/lib/languages/php";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import swift from "highlight.js/lib/languages/swift";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";

export interface Word {
  text: string;
  /** The kind of the word, or "" for words without a colour. */
  kind: string;
}

const lowlight = createLowlight({
  ...{ bash, c, cpp, csharp, css, diff, dockerfile, go, ini, java, javascript, json, kotlin, makefile, markdown, php },
  ...{ python, ruby, rust, sql, swift, typescript, xml, yaml },
});
lowlight.registerAlias({ bash: ["console", "shell"] });

type Nodes = ReturnType<typeof lowlight.highlight>["children"];

/** Null if the language is unknown. */
export function highlighted(language: string, text: string): Word[] | null {
  const name = language.toLowerCase();
  if (!lowlight.registered(name)) return null;
  const words: Word[] = [];
  collect(lowlight.highlight(name, text).children, "", words);
  return words;
}

/** The kinds with a colour, by the names of the library. */
const KINDS: Record<string, string> = {
  ...{ "hljs-comment": "comment", "hljs-quote": "comment" },
  ...{ "hljs-keyword": "keyword", "hljs-selector-tag": "keyword", "hljs-name": "keyword", "hljs-meta": "keyword", "hljs-section": "keyword" },
  ...{ "hljs-string": "string", "hljs-regexp": "string", "hljs-code": "string", "hljs-char": "string" },
  ...{ "hljs-number": "number", "hljs-literal": "number", "hljs-symbol": "number", "hljs-bullet": "number" },
  ...{ "hljs-title": "title", "hljs-built_in": "title", "hljs-selector-class": "title", "hljs-selector-id": "title" },
  ...{ "hljs-type": "type", "hljs-attr": "type", "hljs-attribute": "type", "hljs-variable": "type", "hljs-property": "type", "hljs-template-variable": "type" },
  ...{ "hljs-addition": "addition", "hljs-deletion": "deletion" },
};

function collect(nodes: Nodes, kind: string, words: Word[]): void {
  for (const node of nodes) {
    if (node.type === "text") {
      const last = words.at(-1);
      if (last?.kind === kind) last.text += node.value;
      else words.push({ text: node.value, kind });
    } else if (node.type === "element") {
      const [name] = node.properties["className"] as string[];
      collect(node.children, KINDS[name!] ?? kind, words);
    }
  }
}
