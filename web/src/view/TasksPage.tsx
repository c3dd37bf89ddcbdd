// The tasks of the gateway, newest first, each with a link to its session.

import { useEffect, useState, type ReactNode } from "react";
import type { GatewayClient, Task } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { sessionHref } from "../model/route";
import { useTasks } from "@acp-gateway/react";
import { ago } from "../model/words";
import { taskTone, taskWords } from "../model/tasks";
import { ProblemNote } from "./ProblemNote";

export function TasksPage({ client, menu }: { client: GatewayClient; menu: ReactNode }) {
  const list = useTasks(client);
  const [error, setError] = useState<unknown>(null);

  useEffect(() => {
    document.title = "Tasks";
  }, []);

  async function cancel(task: string) {
    try {
      await client.cancelTask(task);
      setError(null);
    } catch (reason) {
      setError(reason);
    }
    list.refresh();
  }

  return (
    <div className="tasks">
      <header className="bar">{menu}</header>
      <div className="tasks-body">
        <h1>Tasks</h1>
        <p className="tasks-lead">
          Programs create tasks with <code>POST /v1/tasks</code>. <a href="docs">API</a>
        </p>
        {error !== null && <ProblemNote error={error} />}
        {list.error !== null && list.tasks === null && <ProblemNote error={list.error} />}
        {list.tasks?.length === 0 && <p>No tasks yet.</p>}
        <ul className="task-list">
          {list.tasks?.map((task) => (
            <TaskRow key={task.taskId} task={task} onCancel={() => void cancel(task.taskId)} />
          ))}
        </ul>
        {list.more && (
          <button className="button" type="button" onClick={list.loadMore}>
            Show older tasks
          </button>
        )}
      </div>
    </div>
  );
}

function TaskRow({ task, onCancel }: { task: Task; onCancel(): void }) {
  const title = visible(task.description ?? "Task without a description");
  const output = task.result?.output ?? "";
  return (
    <li className="task">
      <p className="task-title">{title}</p>
      <p className="task-meta">
        <span className={`agent-state agent-${taskTone(task)}`}>
          <span className="agent-dot" aria-hidden="true" />
          {taskWords(task)}
        </span>
        <span>
          {task.agent} · {task.priority} · {task.by} · {ago(task.endedAt ?? task.startedAt ?? task.createdAt, Date.now())}
        </span>
      </p>
      {task.result?.error && <ProblemNote problem={task.result.error} />}
      {output !== "" && (
        <details>
          <summary>Output</summary>
          <pre className="output" tabIndex={0} role="group" aria-label="Output">
            {visible(output)}
          </pre>
        </details>
      )}
      <p className="task-actions">
        {task.sessionId != null && (
          <a className="button small" href={sessionHref(task.sessionId)}>
            Open session<span className="hidden"> of {title}</span>
          </a>
        )}
        {(task.status === "queued" || task.status === "running") && (
          <button className="button small" type="button" onClick={onCancel}>
            Cancel<span className="hidden"> {title}</span>
          </button>
        )}
      </p>
    </li>
  );
}
