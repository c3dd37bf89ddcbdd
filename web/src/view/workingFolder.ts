// The session's working folder, so that the paths of files in it can be shown as people know them.

import { createContext, useContext } from "react";
import { visible } from "@acp-gateway/client/read";

export const WorkingFolder = createContext<string | null>(null);

/** The path below the working folder; any other path, and one that climbs out again, stays whole. */
export function useShortPath(path: string): string {
  const folder = useContext(WorkingFolder);
  return shortPath(folder, path);
}

export function shortPath(folder: string | null, path: string): string {
  if (!folder || path.split("/").includes("..")) return path;
  const start = visible(folder).replace(/\/+$/, "") + "/";
  return path.startsWith(start) && path.length > start.length ? path.slice(start.length) : path;
}
