import { expect, test } from "vitest";
import { type Frame, SseParser } from "@acp-gateway/client";

function parse(chunks: string[]): { frames: Frame[]; retries: number[] } {
  const frames: Frame[] = [];
  const retries: number[] = [];
  const parser = new SseParser({ frame: (frame) => frames.push(frame), retry: (value) => retries.push(value) });
  for (const chunk of chunks) parser.push(chunk);
  return { frames, retries };
}

const STREAM = '\uFEFFretry: 1000\r\n: comment\n\nid: k3-1\nevent: prompt.started\ndata: {"a":1}\n\nid:k3-2\rdata:x\rdata\rdata:  y\r\rdata: cut off';

test("reads frames, retries and comments, and leaves an unfinished frame alone", () => {
  const { frames, retries } = parse([STREAM]);
  expect(retries).toEqual([1000]);
  expect(frames).toEqual([
    { id: "k3-1", event: "prompt.started", data: '{"a":1}' },
    { id: "k3-2", event: "message", data: "x\n\n y" },
  ]);
});

test("gives the same for every way of cutting the stream in two, and for single characters", () => {
  const whole = parse([STREAM]);
  for (let cut = 1; cut < STREAM.length; cut += 1) {
    expect(parse([STREAM.slice(0, cut), STREAM.slice(cut)])).toEqual(whole);
  }
  expect(parse([...STREAM])).toEqual(whole);
});

test("a frame without data is none, and its id stays", () => {
  expect(parse(["id: k3-9\n\ndata: z\n\n"]).frames).toEqual([{ id: "k3-9", event: "message", data: "z" }]);
});
