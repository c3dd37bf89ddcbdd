// The error of the last action of a person.

import { useEffect, useState } from "react";
import { Unreachable } from "@acp-gateway/client";

/** `reached` changes when the gateway answers or the page is connected again: "cannot be reached" is not true any more. */
export function useProblem(reached: unknown): [unknown, (error: unknown) => void] {
  const [error, setError] = useState<unknown>(null);
  useEffect(() => setError((before: unknown) => (before instanceof Unreachable ? null : before)), [reached]);
  return [error, setError];
}
