import type { Raw } from "../../src/api/types";

export function mixedUpdates(count: number): Generator<Raw & { sessionUpdate: string }>;
