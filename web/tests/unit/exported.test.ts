import { expect, test } from "vitest";
import { fileName, toMarkdown } from "../../src/model/exported";
import type { Item, SessionLog, Turn } from "@acp-gateway/client";

const text = (text: string) => [{ type: "text", text }];

test("a conversation becomes Markdown with prompts, answers, tools and ends", () => {
  const items = [
    { kind: "thought", key: "1", blocks: text("hidden") },
    { kind: "tool", key: "2", title: "Read a.rs", status: "completed" },
    { kind: "message", key: "3", blocks: text("Done:\n\n```rust\nfn a() {}\n```") },
  ] as unknown as Item[];
  const turn = { key: "t", prompt: text("Fix it"), items, stopReason: "end_turn", problem: null } as unknown as Turn;
  const failed = { key: "u", prompt: text("Again"), items: [], stopReason: null, problem: { title: "Agent crashed" } } as unknown as Turn;
  const log = { agent: "demo", cwd: "/srv/shop", turns: [turn, failed] } as unknown as SessionLog;
  expect(toMarkdown(log, "A title")).toBe(
    "# A title\n\nAgent: demo  \nFolder: `/srv/shop`\n\n## You\n\nFix it\n\n## Agent\n\n- Read a.rs (completed)\n\n" +
      "Done:\n\n```rust\nfn a() {}\n```\n\n_Finished_\n\n## You\n\nAgain\n\n_Agent crashed_\n",
  );
});

test("a file name has only letters, digits and hyphens", () => {
  expect(fileName("Fix: ../../etc  (naïve)")).toBe("Fix-etc-naïve");
  expect(fileName("…")).toBe("session");
  expect(fileName("a".repeat(100))).toBe("a".repeat(60));
});
