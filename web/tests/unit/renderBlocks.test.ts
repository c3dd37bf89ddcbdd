import { describe, expect, test } from "vitest";
import { SYNTAX } from "../../src/maths/syntax";
import { blocksOf, renderBlocks, type Block } from "../../src/view/renderBlocks";
import { CLASSES, COSTLY, PAYLOADS } from "../support/payloads/index.mjs";

/** The longest time for one costly text on a busy machine. */
const COSTLY_MS = 3000;

const TAG =
  /<\/?(?:p|br|hr|strong|em|del|code|pre|blockquote|ul|ol|li|h[2-6]|table|thead|tbody|tr|th|td|a|img|span)(?: (?:href|src|alt|title|start|align|class)="[^"<>]*")*(?: ?\/)?>/g;

/** Everything in the HTML that is not a complete tag of this list with these attributes. */
function rest(html: string): string {
  return html.replace(TAG, "");
}

/** The HTML of a text. The page writes code blocks as text, so they have no HTML. */
function htmlOf(text: string, render: (text: string) => Block[] = renderBlocks): string[] {
  return render(text).flatMap((block) => (block.kind === "html" ? [block.html] : []));
}

function addresses(html: string): string[] {
  return [...html.matchAll(/ (?:href|src)="([^"]*)"/g)].map(([, address]) => address!);
}

const RENDERERS = { "without formulas": renderBlocks, "with formulas": blocksOf(SYNTAX) };

describe.each(Object.entries(RENDERERS))("the HTML of a payload, %s", (_, render) => {
  for (const { name, payloads } of CLASSES) {
    test(`has only elements of Markdown: ${name}`, () => {
      for (const payload of payloads) {
        const html = htmlOf(payload, render).join("\n");
        expect(rest(html), payload).not.toMatch(/[<>]/);
        for (const address of addresses(html)) {
          expect(address, payload).toMatch(/^(https?:\/\/|mailto:|data:image\/(png|jpeg|gif|webp|avif);base64,)/i);
        }
      }
    });
  }

  test("has an image only without a request", () => {
    const images = PAYLOADS.flatMap((payload) => htmlOf(payload, render).flatMap((html) => html.match(/<img [^>]*>/g) ?? []));
    expect(images.length).toBeGreaterThan(0);
    for (const image of images) expect(image).toMatch(/^<img src="data:image\/(png|jpeg|gif|webp|avif);base64,/);
  });
});

describe.each(Object.entries(RENDERERS))("a text that is costly to parse, %s", (_, render) => {
  for (const text of COSTLY) {
    test(`is shown in time: ${text.slice(0, 12)}, ${text.length} characters`, () => {
      const begun = performance.now();
      const html = htmlOf(text, render).join("");
      expect(performance.now() - begun).toBeLessThan(COSTLY_MS);
      expect(rest(html)).not.toMatch(/[<>]/);
    });
  }
});

test("a paragraph with few delimiters keeps its emphasis beside one with many", () => {
  const [crowded, plain] = htmlOf(`${"*a* ".repeat(2000)}\n\n*b*`);
  expect(crowded).not.toContain("<em>");
  expect(plain).toContain("<em>b</em>");
});

test("a code block has its language and its text", () => {
  const [code, plain] = renderBlocks("```rust ignore\n<b>fn</b>\n```\n\n    indented");
  expect(code).toEqual({ kind: "code", language: "rust", text: "<b>fn</b>" });
  expect(plain).toEqual({ kind: "code", language: "", text: "indented" });
});
