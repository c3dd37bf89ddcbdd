// A part of the page that most visits do not need.

import type { ReactNode } from "react";
import { strings } from "../strings";
import { usePart } from "./lazy";

const load = () => import("./seldom");

export function WhenOpened({ children }: { children(parts: Awaited<ReturnType<typeof load>>): ReactNode }) {
  const parts = usePart(load);
  if (parts.state === "failed") return <p role="alert">{strings.common.partFailed}</p>;
  return parts.state === "here" ? children(parts.part) : null;
}
