import { describe, expect, test } from "vitest";
import { item, played, startedScript } from "./events";

describe("a terminal", () => {
  test("gathers its output, and has a place in its turn", () => {
    const script = startedScript()
      .add("terminal.created", { terminalId: "t1", command: "cargo", args: ["test", 7] }, "p1")
      .add("terminal.output", { terminalId: "t1", offset: 0, data: "ok\n" }, "p1")
      .add("terminal.output", { terminalId: "t1", offset: 3, data: "ok\n" }, "p1")
      .add("terminal.exited", { terminalId: "t1", exitCode: 0, signal: null }, "p1");
    const log = played(script);
    const expected = { terminalId: "t1", command: "cargo test", output: "ok\nok\n", cut: false, exited: true, exitCode: 0, signal: null };
    expect(log.terminals["t1"]).toEqual(expected);
    expect(item(log, "terminal").terminalId).toBe("t1");
    expect(log.turns[0]!.items).toHaveLength(1);
  });

  test("keeps the end of an output without end, and says by which signal it ended", () => {
    const script = startedScript().add("terminal.created", { terminalId: "t1", command: "yes" }, "p1");
    for (let part = 0; part < 5; part += 1) script.add("terminal.output", { terminalId: "t1", data: `${part}`.repeat(100_000) }, "p1");
    script.add("terminal.exited", { terminalId: "t1", exitCode: null, signal: "SIGKILL" }, "p1");
    const terminal = played(script).terminals["t1"]!;
    expect([terminal.output.length, terminal.output[0], terminal.cut, terminal.signal]).toEqual([200_000, "3", true, "SIGKILL"]);
  });

  test("of an unknown id or of none does no harm", () => {
    const script = startedScript().add("terminal.output", { data: "x" }, "p1").add("terminal.exited", { terminalId: "__proto__" }, "p1");
    const log = played(script);
    expect(Object.keys(log.terminals)).toEqual(["__proto__"]);
    expect(({} as Record<string, unknown>)["exited"]).toBeUndefined();
  });
});
