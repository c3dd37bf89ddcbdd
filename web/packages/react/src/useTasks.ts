// The list of tasks. The page reloads its first page periodically while it is visible.

import { useCallback, useState } from "react";
import type { GatewayClient, Task, TaskPage } from "@acp-gateway/client";
import { useReload } from "./useReload.js";

const EVERY_MS = 3_000;

export interface TaskList {
  /** The newest first. Null until the first answer. */
  tasks: Task[] | null;
  /** Of the last request, or null. */
  error: unknown;
  /** Whether there are older tasks. */
  more: boolean;
  refresh(): void;
  loadMore(): void;
}

/** The first page is reloaded every 3 s while the page is visible. */
export function useTasks(client: GatewayClient): TaskList {
  const [newest, setNewest] = useState<Task[] | null>(null);
  const [older, setOlder] = useState<Task[]>([]);
  const [cursor, setCursor] = useState<string | null>(null);
  const load = useCallback((signal: AbortSignal) => client.tasks({}, { signal }), [client]);
  const store = useCallback((page: TaskPage) => {
    setNewest(page.tasks);
    // Older pages stay below the first one, which continues to change.
    setCursor((before) => before ?? page.nextCursor ?? null);
  }, []);
  const { error, setError, refresh } = useReload(EVERY_MS, load, store);

  const loadMore = useCallback(() => {
    if (cursor === null) return;
    client.tasks({ cursor }).then(
      (page) => {
        setOlder((before) => [...before, ...page.tasks]);
        setCursor(page.nextCursor ?? null);
      },
      setError,
    );
  }, [client, cursor, setError]);

  const tasks = newest === null ? null : distinct([...newest, ...older]);
  return { tasks, error, more: cursor !== null, refresh, loadMore };
}

/** A task that has moved from the first page to an older one is listed once. */
function distinct(tasks: Task[]): Task[] {
  return [...new Map(tasks.map((task) => [task.taskId, task])).values()].sort((a, b) => (a.taskId < b.taskId ? 1 : -1));
}
